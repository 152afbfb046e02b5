//===- StemBufferizableImpl.cpp - Stem ops under bufferization ------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stem/Dialect/Stem/StemBufferizable.h"

#include "stem/Dialect/Stem/StemDialect.h"

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/DstBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace stem;

namespace {

/// `op` with buffers in place of tensor operands, and other result types.
FailureOr<Operation *> cloneOnBuffers(Operation *op, TypeRange resultTypes,
                                      RewriterBase &rewriter,
                                      const BufferizationOptions &options,
                                      BufferizationState &state) {
  SmallVector<Value> operands(op->getOperands());
  for (Value &operand : operands) {
    if (!isa<TensorType>(operand.getType()))
      continue;
    FailureOr<Value> buffer = getBuffer(rewriter, operand, options, state);
    if (failed(buffer))
      return failure();
    operand = *buffer;
  }
  return mlir::clone(rewriter, op, resultTypes, operands);
}

/// In the layout of a matrix.
Type bufferType(Type tensor) {
  auto type = cast<RankedTensorType>(tensor);
  return MemRefType::get(type.getShape(), type.getElementType());
}

bool readsDestination(PackedMatmulOp op) { return op.getAccumulate(); }
bool readsDestination(PackedGatherOp) { return false; }
bool readsDestination(PackTokensOp) { return false; }
bool readsDestination(TransposeTokensOp) { return false; }
bool readsDestination(PanelMatmulOp) { return true; }

/// On buffers the op writes its destination and has no result.
template <typename OpT>
struct DestinationModel
    : DstBufferizableOpInterfaceExternalModel<DestinationModel<OpT>, OpT> {
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const AnalysisState &) const {
    // Not by value: an input and the destination may be the same matrix.
    return !cast<OpT>(op).isDpsInit(&operand) ||
           readsDestination(cast<OpT>(op));
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto onBuffers = cloneOnBuffers(op, {}, rewriter, options, state);
    if (failed(onBuffers))
      return failure();
    replaceOpWithBufferizedValues(
        rewriter, op, llvm::to_vector(cast<OpT>(*onBuffers).getDpsInits()));
    return success();
  }
};

/// Reads its tensor operands and keeps none of them.
template <typename Model, typename OpT>
struct ReadingModel : BufferizableOpInterface::ExternalModel<Model, OpT> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &,
                              const AnalysisState &) const {
    return true;
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &,
                               const AnalysisState &) const {
    return false;
  }
  AliasingValueList getAliasingValues(Operation *, OpOperand &,
                                      const AnalysisState &) const {
    return {};
  }
  FailureOr<BufferLikeType> getBufferType(Operation *, Value value,
                                          const BufferizationOptions &,
                                          const BufferizationState &,
                                          SmallVector<Value> &) const {
    return cast<BufferLikeType>(bufferType(value.getType()));
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto types = llvm::map_to_vector(op->getResultTypes(), bufferType);
    auto onBuffers = cloneOnBuffers(op, types, rewriter, options, state);
    if (failed(onBuffers))
      return failure();
    replaceOpWithBufferizedValues(rewriter, op, (*onBuffers)->getResults());
    return success();
  }
};

struct KVAppendModel : ReadingModel<KVAppendModel, KVAppendOp> {};

struct PlanRowsModel : ReadingModel<PlanRowsModel, PlanRowsOp> {
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto onBuffers =
        cloneOnBuffers(op, op->getResultTypes(), rewriter, options, state);
    if (failed(onBuffers))
      return failure();
    rewriter.replaceOp(op, (*onBuffers)->getResults());
    return success();
  }
};

/// The rows belong to the table store: read-only.
struct AwaitModel : ReadingModel<AwaitModel, AwaitOp> {
  bool isWritable(Operation *, Value, const AnalysisState &) const {
    return false;
  }
};

} // namespace

void stem::registerBufferizableModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, StemDialect *) {
    PackedMatmulOp::attachInterface<DestinationModel<PackedMatmulOp>>(*context);
    PackedGatherOp::attachInterface<DestinationModel<PackedGatherOp>>(*context);
    PackTokensOp::attachInterface<DestinationModel<PackTokensOp>>(*context);
    TransposeTokensOp::attachInterface<DestinationModel<TransposeTokensOp>>(
        *context);
    PanelMatmulOp::attachInterface<DestinationModel<PanelMatmulOp>>(*context);
    KVAppendOp::attachInterface<KVAppendModel>(*context);
    PlanRowsOp::attachInterface<PlanRowsModel>(*context);
    AwaitOp::attachInterface<AwaitModel>(*context);
  });
}
