//===- PrintCost.cpp - What the ops of a module cost ----------------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpCosts.h"

#include "stem/Dialect/Stem/Count.h"
#include "stem/Transforms/OptionChecks.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

#include <cmath>

namespace stem {
#define GEN_PASS_DEF_STEMPRINTCOSTPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

struct Line {
  std::string op;
  OpCost cost;
  double seconds;
  bool isComputeBound;

  double intensity() const {
    return cost.bytes == 0 ? 0.0 : static_cast<double>(cost.flops) / cost.bytes;
  }
};

struct FunctionCost {
  std::string name;
  SmallVector<Line> lines;
  OpCost total;
  double seconds = 0.0;

  double share(const Line &line) const {
    return seconds == 0.0 ? 0.0 : line.seconds / seconds;
  }
};

/// Costs of functions; a call costs what its callee does. A cost that does not
/// fit into 64 bits is an error.
class CostTable {
public:
  CostTable(int64_t tokens, double gflops, double bandwidth)
      : tokens(tokens), flopRate(gflops * 1e9), byteRate(bandwidth * 1e9) {}

  const FunctionCost &costOf(func::FuncOp function);
  bool isExact() const { return allExact; }

private:
  /// `cost` and `seconds` are those of one of `rounds` executions of `op`.
  void addLine(FunctionCost &sum, Operation *op, StringRef name, OpCost cost,
               int64_t rounds, double seconds);
  void addCall(FunctionCost &sum, Operation *call, FlatSymbolRefAttr symbol,
               int64_t rounds);

  int64_t tokens;
  double flopRate, byteRate;
  bool allExact = true;
  std::map<std::string, FunctionCost> functions;
};

} // namespace

void CostTable::addLine(FunctionCost &sum, Operation *op, StringRef name,
                        OpCost cost, int64_t rounds, double seconds) {
  // The rounds share their weights.
  Count flops = Count(cost.flops) * rounds, bytes = Count(cost.bytes) * rounds;
  cost = {flops.get(), bytes.get(), cost.parameters};
  for (auto [total, part] : {std::pair(&sum.total.flops, cost.flops),
                             std::pair(&sum.total.bytes, cost.bytes),
                             std::pair(&sum.total.parameters, cost.parameters)})
    *total = (Count(*total) + part).get();
  for (Count count : {sum.total.flops, sum.total.bytes, sum.total.parameters})
    if (!count.isExact()) {
      if (allExact)
        op->emitError() << "'" << name << "' costs more FLOPs, bytes or "
                        << "parameters than 64 bits can count, alone or with "
                           "the ops before it; lower stem-tokens or the sizes";
      allExact = false;
      return;
    }
  seconds *= rounds;
  sum.lines.push_back({name.str(), cost, seconds,
                       cost.flops / flopRate > cost.bytes / byteRate});
  sum.seconds += seconds;
}

const FunctionCost &CostTable::costOf(func::FuncOp function) {
  auto [entry, isNew] = functions.try_emplace(function.getName().str());
  // A function that calls itself costs what was counted so far.
  if (!isNew)
    return entry->second;
  FunctionCost &sum = entry->second;
  sum.name = function.getName();
  function.walk([&](Operation *op) {
    int64_t rounds = countRounds(op, tokens);
    if (std::optional<OpCost> cost = getOpCost(op, tokens)) {
      double compute = cost->flops / flopRate, memory = cost->bytes / byteRate;
      addLine(sum, op, op->getName().getStringRef(), *cost, rounds,
              std::max(compute, memory));
    } else if (auto call = dyn_cast<func::CallOp>(op)) {
      addCall(sum, call, call.getCalleeAttr(), rounds);
    } else if (auto call = dyn_cast<ParallelCallOp>(op)) {
      int64_t tasks = evaluateIndex(call.getTasks(), tokens).value_or(1);
      addCall(sum, call, call.getCalleeAttr(), (Count(rounds) * tasks).get());
    }
  });
  return sum;
}

void CostTable::addCall(FunctionCost &sum, Operation *call,
                        FlatSymbolRefAttr symbol, int64_t rounds) {
  auto callee =
      SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(call, symbol);
  if (!callee)
    return;
  const FunctionCost &inner = costOf(callee);
  addLine(sum, call, ("call @" + symbol.getValue()).str(), inner.total, rounds,
          inner.seconds);
}

static void printRow(raw_ostream &os, StringRef op, const OpCost &cost,
                     double intensity, double share, StringRef bound) {
  os << "  " << llvm::left_justify(op, 28)
     << llvm::format(" %16lld %14lld %14lld %9.2f %6.1f%%  ",
                     static_cast<long long>(cost.flops),
                     static_cast<long long>(cost.bytes),
                     static_cast<long long>(cost.parameters), intensity,
                     100.0 * share)
     << bound << "\n";
}

static void printTable(raw_ostream &os, const FunctionCost &function) {
  os << "@" << function.name << "\n  " << llvm::left_justify("op", 28)
     << llvm::right_justify("FLOPs", 17) << llvm::right_justify("bytes", 15)
     << llvm::right_justify("parameters", 15)
     << llvm::right_justify("FLOP/B", 10) << llvm::right_justify("share", 8)
     << "  bound\n";
  for (const Line &line : function.lines)
    printRow(os, line.op, line.cost, line.intensity(), function.share(line),
             line.isComputeBound ? "compute" : "memory");
  Line total{"sum", function.total, function.seconds, false};
  printRow(os, total.op, total.cost, total.intensity(),
           function.seconds > 0.0 ? 1.0 : 0.0, "");
  os << llvm::format("  roofline time %.6g ms\n", 1e3 * function.seconds);
}

static void printCost(llvm::json::OStream &json, const OpCost &cost) {
  json.attribute("flops", cost.flops);
  json.attribute("bytes", cost.bytes);
  json.attribute("parameters", cost.parameters);
}

static void printJson(llvm::json::OStream &json, const FunctionCost &function) {
  json.object([&] {
    json.attribute("name", function.name);
    json.attributeArray("ops", [&] {
      for (const Line &line : function.lines)
        json.object([&] {
          json.attribute("op", line.op);
          printCost(json, line.cost);
          json.attribute("intensity", line.intensity());
          json.attribute("share", function.share(line));
          json.attribute("bound", line.isComputeBound ? "compute" : "memory");
        });
    });
    printCost(json, function.total);
    json.attribute("seconds", function.seconds);
  });
}

namespace {

struct PrintCostPass : public stem::impl::StemPrintCostPassBase<PrintCostPass> {
  using StemPrintCostPassBase::StemPrintCostPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    for (const Option<double> *rate : {&gflops, &bandwidth})
      if (!(*rate > 0.0) || std::isinf(rate->getValue()))
        return emitError(UnknownLoc::get(context))
               << rate->ArgStr << " is " << rate->getValue()
               << "; wanted a number above 0";
    return checkOption(context, tokens, {.least = 1});
  }

  void printAll(CostTable &table) {
    raw_ostream &os = llvm::outs();
    auto functions = getOperation().getOps<func::FuncOp>();
    if (!json) {
      for (auto function : functions)
        if (!function.isExternal())
          printTable(os, table.costOf(function));
      return;
    }
    llvm::json::OStream out(os, /*IndentSize=*/2);
    out.object([&] {
      out.attribute("schema", "stem.cost/1");
      out.attribute("tokens", tokens.getValue());
      out.attribute("gflops", gflops.getValue());
      out.attribute("bandwidth_gbs", bandwidth.getValue());
      out.attributeArray("functions", [&] {
        for (auto function : functions)
          if (!function.isExternal())
            printJson(out, table.costOf(function));
      });
    });
    os << "\n";
  }

  void runOnOperation() override {
    markAllAnalysesPreserved();
    CostTable table(tokens, gflops, bandwidth);
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        table.costOf(function);
    if (!table.isExact())
      return signalPassFailure();
    printAll(table);
  }
};

} // namespace
