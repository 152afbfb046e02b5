//===- GraphPasses.td - Phase 1 passes ---------------------*- tablegen -*-===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

def StemVerifyGraphPass : Pass<"stem-verify-graph", "::mlir::ModuleOp"> {
  let summary = "Check that a module is ready for the schedule phase";
  let description = [{
    Ends the graph phase: functions hold `stem` ops on tensors and elementwise
    `arith`, weights and tables are symbols. Reports every other op, then
    fails.
  }];
}
