//===- LowerToHost.cpp - From buffers and loops to the LLVM dialect -------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowerToHost.h"
#include "RowUses.h"

#include "stem-c/Runtime.h"
#include "stem/Transforms/OptionChecks.h"
#include "stem/Transforms/Passes.h"

#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Conversion/VectorToSCF/VectorToSCF.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Index/IR/IndexDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/DialectConversion.h"
#include "llvm/ADT/StringSet.h"

namespace stem {
#define GEN_PASS_DEF_STEMLOWERTOHOSTPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

//===----------------------------------------------------------------------===//
// What can be lowered
//===----------------------------------------------------------------------===//

/// Math ops that the host has instructions for. Any other one would become a
/// call into the C library, whose results differ from machine to machine.
static bool isHostMath(Operation *op) {
  return isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::CopySignOp,
             math::CountLeadingZerosOp, math::CountTrailingZerosOp,
             math::CtPopOp, math::FloorOp, math::FmaOp, math::RoundEvenOp,
             math::RsqrtOp, math::SqrtOp, math::TruncOp>(op);
}

static bool hasUnitInnerStride(Type type) {
  auto buffer = dyn_cast<MemRefType>(type);
  SmallVector<int64_t> strides;
  int64_t offset;
  return buffer && succeeded(buffer.getStridesAndOffset(strides, offset)) &&
         (strides.empty() || strides.back() == 1);
}

static LogicalResult checkStemOp(Operation *op) {
  if (isa<ParamOp, TableOp, KVPageOp, ParallelCallOp>(op))
    return success();
  if (isa<ThreadIndexOp>(op))
    return op->emitOpError(
        "has no thread to name here: run stem-outline-parallel first");
  if (!isa<PackedMatmulOp, PackedGatherOp, PackTokensOp, TransposeTokensOp,
           PanelMatmulOp, KVAppendOp, PlanRowsOp, PrefetchOp, AwaitOp,
           ReleaseOp>(op))
    return op->emitOpError("cannot be lowered to the host: the structured "
                           "phase should have replaced it");
  for (Value operand : op->getOperands()) {
    if (isa<TensorType>(operand.getType()))
      return op->emitOpError("works on tensors: bufferize first");
    if (isa<MemRefType>(operand.getType()) &&
        !hasUnitInnerStride(operand.getType()))
      return op->emitOpError()
             << "reads rows of contiguous elements, but an operand has type "
             << operand.getType();
  }
  for (Type type : op->getResultTypes())
    if (isa<TensorType>(type))
      return op->emitOpError("works on tensors: bufferize first");
  return success();
}

/// The op would become a call that the runtime does not answer.
static LogicalResult checkCalls(Operation *op) {
  if (isa<memref::AllocOp, memref::AllocaOp, memref::DeallocOp,
          memref::ReallocOp>(op))
    return op->emitOpError("is left: compiled code allocates nothing, run "
                           "stem-plan-memory first");
  if (isa<math::MathDialect>(op->getDialect()) && !isHostMath(op))
    return op->emitOpError("would become a call into the C library: run "
                           "stem-expand-math first");
  if (isa<arith::RemFOp, vector::PrintOp>(op))
    return op->emitOpError("would become a call into a library");
  if (isa<arith::TruncFOp>(op) &&
      getElementTypeOrSelf(op->getOperand(0)).isF64() &&
      !getElementTypeOrSelf(op->getResult(0)).isF32())
    return op->emitOpError("would become a call into the C library: convert "
                           "to f32 first");
  if (auto copy = dyn_cast<memref::CopyOp>(op)) {
    for (Value buffer : {copy.getSource(), copy.getTarget()})
      if (!isa<MemRefType>(buffer.getType()) ||
          !cast<MemRefType>(buffer.getType()).getLayout().isIdentity())
        return op->emitOpError("of strided buffers would become a library "
                               "call: run stem-vectorize first");
  }
  return success();
}

static LogicalResult checkFunction(Operation *op) {
  if (auto function = dyn_cast<func::FuncOp>(op)) {
    if (function.isExternal())
      return op->emitOpError("has no body: compiled code calls nothing but "
                             "the runtime");
    if (function.getSymName().starts_with("stem_"))
      return op->emitOpError("has a name of the runtime: those that begin "
                             "with 'stem_' are taken");
  }
  if (auto call = dyn_cast<func::CallOp>(op)) {
    auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
        op, call.getCalleeAttr());
    if (callee && callee->hasAttr(StemDialect::kEntryAttr))
      return op->emitOpError("calls an entry: entries are called by the "
                             "runtime alone");
  }
  return success();
}

static LogicalResult checkOp(Operation *op) {
  if (isa_and_nonnull<ModuleOp>(op->getParentOp()) &&
      !isa<func::FuncOp, memref::GlobalOp, ParamOp, TableOp>(op))
    return op->emitOpError("stands outside of a function");
  if (isa<StemDialect>(op->getDialect()))
    return checkStemOp(op);
  if (failed(checkCalls(op)) || failed(checkFunction(op)))
    return failure();
  if (isa<scf::ForallOp, scf::ParallelOp>(op))
    return op->emitOpError("is left: run stem-outline-parallel first");
  if (isa<ModuleOp>(op))
    return success();
  if (isa<affine::AffineDialect, arith::ArithDialect, cf::ControlFlowDialect,
          func::FuncDialect, index::IndexDialect, math::MathDialect,
          memref::MemRefDialect, scf::SCFDialect, ub::UBDialect,
          vector::VectorDialect>(op->getDialect()))
    return success();
  return op->emitOpError("cannot be lowered to the host");
}

/// Reports every op that could not be lowered.
static LogicalResult checkInput(ModuleOp module) {
  bool failed = false;
  module.walk([&](Operation *op) { failed |= checkOp(op).failed(); });
  return failure(failed);
}

/// Nothing but the LLVM dialect is left, and nothing but the runtime is called.
static LogicalResult checkOutput(ModuleOp module) {
  bool failed = false;
  module.walk([&](Operation *op) {
    if (isa<ModuleOp>(op))
      return;
    if (!isa<LLVM::LLVMDialect>(op->getDialect())) {
      op->emitOpError("was not lowered to the host");
      failed = true;
    }
    auto global = dyn_cast<LLVM::GlobalOp>(op);
    if (global && !global.getValueOrNull() &&
        global.getInitializerRegion().empty()) {
      global.emitOpError("has no value, and nothing else defines it");
      failed = true;
    }
    auto function = dyn_cast<LLVM::LLVMFuncOp>(op);
    if (function && function.isExternal() &&
        !isRuntimeFunction(function.getSymName())) {
      function.emitError() << "'" << function.getSymName()
                           << "' is called, but the runtime has no such "
                              "function";
      failed = true;
    }
  });
  return failure(failed);
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {

struct LowerToHostPass
    : public stem::impl::StemLowerToHostPassBase<LowerToHostPass> {
  using StemLowerToHostPassBase::StemLowerToHostPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    return checkOption(context, isa,
                       {.least = STEM_ISA_NATIVE, .most = STEM_ISA_AMX});
  }

  void runOnOperation() override {
    if (failed(lower(getOperation())))
      signalPassFailure();
  }

private:
  LogicalResult lower(ModuleOp module);
  LogicalResult simplify(ModuleOp module);
  LogicalResult convert(ModuleOp module, LLVMTypeConverter &converter);
};

/// Passes that leave ops with a direct counterpart in the LLVM dialect.
LogicalResult LowerToHostPass::simplify(ModuleOp module) {
  OpPassManager passes(ModuleOp::getOperationName());
  passes.addNestedPass<func::FuncOp>(createConvertVectorToSCFPass());
  passes.addPass(memref::createExpandStridedMetadataPass());
  passes.addPass(createLowerAffinePass());
  // Without its instructions a conversion to bf16 would be a library call.
  arith::ArithExpandOpsPassOptions expand;
  expand.includeBf16 = isa < STEM_ISA_AVX512_BF16;
  passes.addPass(arith::createArithExpandOpsPass(expand));
  passes.addPass(createSCFToControlFlowPass());
  // Lanes are summed as a tree, in an order that depends on nothing else.
  ConvertVectorToLLVMPassOptions vector;
  vector.reassociateFPReductions = true;
  passes.addPass(createConvertVectorToLLVMPass(vector));
  return runPipeline(passes, module);
}

LogicalResult LowerToHostPass::convert(ModuleOp module,
                                       LLVMTypeConverter &converter) {
  RewritePatternSet patterns(&getContext());
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  index::populateIndexToLLVMConversionPatterns(converter, patterns);
  populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns);
  populateFuncToLLVMConversionPatterns(converter, patterns);
  populateMathToLLVMConversionPatterns(converter, patterns);
  ub::populateUBToLLVMConversionPatterns(converter, patterns);
  populateStemToHostPatterns(converter, patterns);
  LLVMConversionTarget target(getContext());
  target.addLegalOp<ModuleOp, UnrealizedConversionCastOp>();
  ConversionConfig config;
  config.allowPatternRollback = false;
  if (failed(applyFullConversion(module, target, std::move(patterns), config)))
    return failure();
  OpPassManager passes(ModuleOp::getOperationName());
  passes.addPass(createReconcileUnrealizedCastsPass());
  return runPipeline(passes, module);
}

/// Only the query is seen from outside.
void hideFunctions(ModuleOp module) {
  module.walk([](LLVM::LLVMFuncOp function) {
    bool isQuery = function.getSymName() == STEM_MODULE_QUERY;
    if (!function.isExternal() && !isQuery)
      function.setLinkage(LLVM::Linkage::Internal);
  });
}

/// Functions that a func.call names: the layers, and what entries share.
llvm::StringSet<> calledFunctions(ModuleOp module) {
  llvm::StringSet<> names;
  module.walk([&](func::CallOp call) { names.insert(call.getCallee()); });
  return names;
}

/// A called function takes its buffers otherwise than one that threads run.
LogicalResult checkThreadBodies(ModuleOp module,
                                const llvm::StringSet<> &called) {
  bool failed = false;
  module.walk([&](ParallelCallOp op) {
    if (!called.contains(op.getCallee()))
      return;
    op.emitOpError() << "names '" << op.getCallee()
                     << "', which func.call names too: give the threads a "
                        "function of their own";
    failed = true;
  });
  return failure(failed);
}

/// A layer is called once for each layer of the model; inlined, it would be
/// compiled as often.
void keepFunctionsApart(ModuleOp module, const llvm::StringSet<> &names) {
  module.walk([&](LLVM::LLVMFuncOp function) {
    if (!function.isExternal() && names.contains(function.getSymName()))
      function.setNoInline(true);
  });
}

/// A body calls each layer of the model, once a step: there is nothing to gain
/// in it, and it is the one function that grows with depth.
void leaveUnoptimised(ModuleOp module, const Twine &name) {
  auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(name.str());
  function.setNoInline(true);
  function.setOptimizeNone(true);
}

/// What the attributes say has been read; the LLVM dialect knows none of them.
void dropStemAttributes(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>()) {
    for (NamedAttribute attribute :
         llvm::to_vector(function->getDiscardableAttrs()))
      if (attribute.getName().strref().starts_with("stem."))
        function->removeDiscardableAttr(attribute.getName());
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      for (NamedAttribute attribute : llvm::to_vector(
               mlir::function_interface_impl::getArgAttrs(function, i)))
        if (attribute.getName().strref().starts_with("stem."))
          function.removeArgAttr(i, attribute.getName());
  }
}

LogicalResult LowerToHostPass::lower(ModuleOp module) {
  llvm::StringSet<> called = calledFunctions(module);
  if (failed(checkInput(module)) || failed(verifyTables(module)) ||
      failed(checkThreadBodies(module, called)))
    return failure();
  FailureOr<std::vector<HostEntry>> entries = collectEntries(module);
  if (failed(entries))
    return failure();

  LowerToLLVMOptions options(&getContext());
  LLVMTypeConverter converter(&getContext(), options);
  Type pointer = LLVM::LLVMPointerType::get(&getContext());
  converter.addConversion([=](PackedType) { return pointer; });
  converter.addConversion([=](KVCacheType) { return pointer; });

  dropStemAttributes(module);
  addContextArguments(module);
  for (HostEntry &entry : *entries)
    if (failed(lowerTables(entry, converter)))
      return failure();
  passBuffersByAddress(module, converter);
  if (failed(lowerParallelCalls(module, converter)))
    return failure();
  for (auto [number, entry] : llvm::enumerate(*entries))
    buildEntry(entry, number, converter);
  buildDescription(module, *entries, isa);
  for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
    if (mlir::isa<ParamOp, TableOp>(op))
      op.erase();
  if (failed(simplify(module)) || failed(convert(module, converter)) ||
      failed(checkOutput(module)))
    return failure();
  hideFunctions(module);
  keepFunctionsApart(module, called);
  for (const HostEntry &entry : *entries)
    leaveUnoptimised(module, entry.name + "_body");
  return success();
}

} // namespace
