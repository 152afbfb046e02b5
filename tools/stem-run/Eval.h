//===- Eval.h - The parts of stem-run eval ------------------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEM_TOOLS_STEM_RUN_EVAL_H
#define STEM_TOOLS_STEM_RUN_EVAL_H

#include "CommandLine.h"
#include "Json.h"
#include "Windows.h"
#include "stem/Model/Tokenizer.h"

#include <filesystem>
#include <string>
#include <vector>

namespace stem {

struct EvalArguments {
  std::filesystem::path model;
  std::vector<std::filesystem::path> rows; ///< overlays of the model
  std::vector<std::string> texts;
  int64_t context = 0; ///< 0: the default
  int64_t stride = 0;  ///< 0: the context
  bool special = false;
  std::filesystem::path against;
  std::filesystem::path inputIds;
  std::filesystem::path logitsOut;
  bool force = false; ///< replace logitsOut
  bool json = false;
  CompileArguments compile;
};

/// One file, tokenized and cut.
struct EvalFile {
  std::string path;
  bool isJsonLines = false;
  uint64_t bytes = 0; ///< of the documents' text
  std::string sha256; ///< of the file
  std::vector<std::vector<int32_t>> documents;
  std::vector<Window> windows; ///< those of a document lie together
  size_t tokens() const;
};

/// The tokens of every file. Throws for a document without a token to score.
std::vector<EvalFile> readFiles(const EvalArguments &arguments,
                                const Tokenizer &tokenizer, int64_t context,
                                int64_t stride);

/// Warns of each file that the model's tables were fitted on.
void warnOfCalibrationTexts(const Checkpoint &checkpoint,
                            const std::vector<EvalFile> &files);

/// Throws where the loss of a window's label at `index` is not finite: the
/// Error names the model, the file, the document and the token.
void requireFiniteLoss(double loss, const std::filesystem::path &model,
                       const EvalFile &file, const Window &window,
                       size_t index);

/// What to do where a model gives values that are not finite; for messages.
inline constexpr const char *kNotFiniteAdvice =
    "look for NaN or infinity in its weights (stem-run import names the "
    "tensors that hold any), or try --dtype=f32";

/// --text: perplexity of one model.
void evaluateTexts(const EvalArguments &arguments);
/// --text --against: two models on the same tokens.
void compareModels(const EvalArguments &arguments);
/// --input-ids, --logits-out.
void writeLogits(const EvalArguments &arguments);

/// --ctx and --stride with their defaults, checked against the model.
struct EvalProtocol {
  int64_t context;
  int64_t stride;
  bool addsBegin;
  bool addsEnd;
  bool parsesSpecial; ///< special tokens spelled in a text are tokens
  /// One line that says all of it.
  std::string describe() const;
  Json toJson() const;
};
EvalProtocol chooseProtocol(const EvalArguments &arguments,
                            const ModelConfig &config,
                            const Tokenizer &tokenizer);

/// The loss of a document, summed over its scored tokens.
struct DocumentLoss {
  int64_t tokens = 0;
  double nll = 0;
};

/// What a file's losses come to.
struct FileResult {
  double nll = 0; ///< sum over the scored tokens, natural logarithm
  std::vector<double> losses;
  std::vector<DocumentLoss> documents;
  void add(double loss, size_t document);
  double perplexity() const;
  double perplexityError() const; ///< standard error, by the delta method
  double bitsPerByte(uint64_t bytes) const;
};

} // namespace stem

#endif // STEM_TOOLS_STEM_RUN_EVAL_H
