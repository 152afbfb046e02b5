//===- ChatTemplateFamilyTest.cpp - Templates of real families ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Templates with the constructs of the families that Stem reads; the expected
// texts are what Jinja2 3.1 renders.
//
//===----------------------------------------------------------------------===//

#include "ChatTemplateTestData.h"
#include "stem/Support/Error.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

using namespace stem;
using namespace stem::test;

namespace {

ChatTemplate load(const std::string &family) {
  std::string path = STEM_TEST_DATA "/chat/" + family + ".jinja";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return ChatTemplate::parse(text.str(), family);
}

std::string render(const std::string &family,
                   const std::vector<ChatMessage> &messages,
                   const ChatOptions &options) {
  std::string text;
  for (const ChatPiece &piece : load(family).render(messages, options))
    text += piece.text;
  return text;
}

const std::vector<ChatMessage> single = {{"user", "Hi there"}};
const std::vector<ChatMessage> thoughts = {
    {"user", "a"},
    {"assistant", "<think>\nhm\n</think>\n\nb"},
    {"user", "c"},
    {"assistant", "\n<think>\nlast\n</think>\n\nd"}};
const std::vector<ChatMessage> unpaired = {{"user", "a"}, {"user", "b"}};
const std::vector<ChatMessage> wide = {{"system", "x/no_think y /think"},
                                       {"user", "\303\274\343\200\200"},
                                       {"assistant", "\303\251"}};

TEST(ChatTemplateFamily, Chatml) {
  ChatOptions options = makeOptions();
  EXPECT_EQ(render("chatml", conversation, options),
            "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHi "
            "<|im_end|> "
            "\n<|im_end|>\n<|im_start|>assistant\nYes\n<|im_end|>\n<|im_start|>"
            "user\n more <|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(render("chatml", single, options),
            "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nHi "
            "there<|im_end|>\n<|im_start|>assistant\n");
  options.addGenerationPrompt = false;
  EXPECT_EQ(render("chatml", single, options),
            "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nHi "
            "there<|im_end|>\n");
}

TEST(ChatTemplateFamily, Tinyllama) {
  ChatOptions options = makeOptions();
  EXPECT_EQ(render("tinyllama", conversation, options),
            "<|system|>\n Be brief. </s>\n<|user|>\nHi <|im_end|> "
            "\n</s>\n<|assistant|>\nYes\n</s>\n<|user|>\n more "
            "</s>\n<|assistant|>\n");
  options.addGenerationPrompt = false;
  EXPECT_EQ(render("tinyllama", single, options), "<|user|>\nHi there</s>\n");
}

TEST(ChatTemplateFamily, Olmo2) {
  ChatOptions options = makeOptions();
  EXPECT_EQ(render("olmo2", conversation, options),
            "<s><|system|>\n Be brief. \n<|user|>\nHi <|im_end|> "
            "\n\n<|assistant|>\nYes\n</s>\n<|user|>\n more \n<|assistant|>\n");
  EXPECT_EQ(render("olmo2", thoughts, options),
            "<s><|user|>\na\n<|assistant|>\n<think>\nhm\n</think>\n\nb</"
            "s>\n<|user|>\nc\n<|assistant|>\n\n<think>\nlast\n</think>\n\nd</"
            "s><|assistant|>\n");
  options.addGenerationPrompt = false;
  EXPECT_EQ(render("olmo2", single, options), "<s><|user|>\nHi there\n");
}

TEST(ChatTemplateFamily, Llama2) {
  ChatOptions options = makeOptions();
  EXPECT_EQ(render("llama2", conversation, options),
            "<s>[INST] <<SYS>>\n Be brief. \n<</SYS>>\n\nHi <|im_end|> [/INST] "
            "Yes </s><s>[INST] more [/INST]");
  EXPECT_EQ(render("llama2", single, options), "<s>[INST] Hi there [/INST]");
  try {
    render("llama2", unpaired, options);
    ADD_FAILURE() << "no error";
  } catch (const Error &error) {
    EXPECT_STREQ(error.what(),
                 "chat template 'llama2', line 10: the template refuses these "
                 "messages: Turns must alternate between user and assistant");
  }
  options.addGenerationPrompt = false;
  EXPECT_EQ(render("llama2", single, options), "<s>[INST] Hi there [/INST]");
}

TEST(ChatTemplateFamily, Llama3) {
  ChatOptions options = makeOptions();
  EXPECT_EQ(render("llama3", conversation, options),
            "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 05 "
            "Jul 2024\n\nBe "
            "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi "
            "<|im_end|><|eot_id|><|start_header_id|>assistant<|end_header_id|>"
            "\n\nYes<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nmore<"
            "|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(
      render("llama3", single, options),
      "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 05 Jul "
      "2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi "
      "there<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
  options.addGenerationPrompt = false;
  EXPECT_EQ(
      render("llama3", single, options),
      "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 05 Jul "
      "2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi "
      "there<|eot_id|>");
}

TEST(ChatTemplateFamily, Mistral) {
  ChatOptions options = makeOptions();
  EXPECT_EQ(render("mistral", conversation, options),
            "<s>[INST] Hi <|im_end|> \n[/INST] Yes</s>[INST]  Be brief. \n\n "
            "more [/INST]");
  EXPECT_EQ(render("mistral", single, options), "<s>[INST] Hi there[/INST]");
  try {
    render("mistral", unpaired, options);
    ADD_FAILURE() << "no error";
  } catch (const Error &error) {
    EXPECT_STREQ(error.what(),
                 "chat template 'mistral', line 16: the template refuses these "
                 "messages: user and assistant must take turns");
  }
  options.addGenerationPrompt = false;
  EXPECT_EQ(render("mistral", single, options), "<s>[INST] Hi there[/INST]");
}

TEST(ChatTemplateFamily, Qwen3) {
  ChatOptions options = makeOptions();
  EXPECT_EQ(render("qwen3", thoughts, options),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>"
            "\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n<think>"
            "\nlast\n</think>\n\nd<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(render("qwen3", conversation, options),
            "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nHi "
            "<|im_end|> "
            "\n<|im_end|>\n<|im_start|>assistant\nYes\n<|im_end|>\n<|im_start|>"
            "user\n more <|im_end|>\n<|im_start|>assistant\n");
  options.enableThinking = false;
  EXPECT_EQ(render("qwen3", single, options),
            "<|im_start|>user\nHi "
            "there<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  options.addGenerationPrompt = false;
  options.enableThinking = true;
  EXPECT_EQ(render("qwen3", single, options),
            "<|im_start|>user\nHi there<|im_end|>\n");
}

TEST(ChatTemplateFamily, Smollm3) {
  ChatOptions options = makeOptions();
  EXPECT_EQ(render("smollm3", wide, options),
            "<|im_start|>system\nToday Date: 05 July 2024\nReasoning Mode: "
            "/no_think\n\nx "
            "y\n\n<|im_end|>\n<|im_start|>user\n\303\274\343\200\200<|im_end|>"
            "\n<|im_start|>assistant\n<think>\n\n</"
            "think>\n\303\251<|im_end|>\n<|im_start|>assistant\n<think>\n\n</"
            "think>\n");
  EXPECT_EQ(render("smollm3", thoughts, options),
            "<|im_start|>system\nToday Date: 05 July 2024\nReasoning Mode: "
            "/think\n\n<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>"
            "assistant\n<think>\nhm\n</"
            "think>\n\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>"
            "assistant\n<think>\nlast\n</"
            "think>\n\nd<|im_end|>\n<|im_start|>assistant\n");
  options.enableThinking = false;
  EXPECT_EQ(render("smollm3", single, options),
            "<|im_start|>system\nToday Date: 05 July 2024\nReasoning Mode: "
            "/no_think\n\n<|im_end|>\n<|im_start|>user\nHi "
            "there<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n");
  options.addGenerationPrompt = false;
  options.enableThinking = true;
  EXPECT_EQ(render("smollm3", single, options),
            "<|im_start|>system\nToday Date: 05 July 2024\nReasoning Mode: "
            "/think\n\n<|im_end|>\n<|im_start|>user\nHi there<|im_end|>\n");
}

} // namespace
