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

using namespace mlir;
using namespace mlir::bufferization;
using namespace stem;

namespace {

struct PackedMatmulModel
    : DstBufferizableOpInterfaceExternalModel<PackedMatmulModel,
                                              PackedMatmulOp> {
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const AnalysisState &) const {
    // Not by value: `a` and `acc` may be the same matrix.
    auto matmul = cast<PackedMatmulOp>(op);
    return !matmul.isDpsInit(&operand) || matmul.getAccumulate();
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto matmul = cast<PackedMatmulOp>(op);
    FailureOr<Value> a = getBuffer(rewriter, matmul.getA(), options, state);
    FailureOr<Value> acc = getBuffer(rewriter, matmul.getAcc(), options, state);
    if (failed(a) || failed(acc))
      return failure();
    PackedMatmulOp::create(rewriter, op->getLoc(), TypeRange(), *a,
                           matmul.getB(), *acc, matmul.getKOffset(),
                           matmul.getNOffset(), matmul.getAccumulate());
    replaceOpWithBufferizedValues(rewriter, op, *acc);
    return success();
  }
};

struct PackedGatherModel
    : DstBufferizableOpInterfaceExternalModel<PackedGatherModel,
                                              PackedGatherOp> {
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const AnalysisState &) const {
    return !cast<PackedGatherOp>(op).isDpsInit(&operand);
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto gather = cast<PackedGatherOp>(op);
    FailureOr<Value> ids = getBuffer(rewriter, gather.getIds(), options, state);
    FailureOr<Value> out = getBuffer(rewriter, gather.getOut(), options, state);
    if (failed(ids) || failed(out))
      return failure();
    PackedGatherOp::create(rewriter, op->getLoc(), TypeRange(), *ids,
                           gather.getB(), *out);
    replaceOpWithBufferizedValues(rewriter, op, *out);
    return success();
  }
};

struct KVAppendModel
    : BufferizableOpInterface::ExternalModel<KVAppendModel, KVAppendOp> {
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

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto append = cast<KVAppendOp>(op);
    SmallVector<Value> buffers;
    for (Value operand : {append.getK(), append.getV(), append.getPositions(),
                          append.getSequences()}) {
      FailureOr<Value> buffer = getBuffer(rewriter, operand, options, state);
      if (failed(buffer))
        return failure();
      buffers.push_back(*buffer);
    }
    rewriter.replaceOpWithNewOp<KVAppendOp>(
        op, buffers[0], buffers[1], buffers[2], buffers[3], append.getCache(),
        append.getLayer());
    return success();
  }
};

/// The rows belong to the table store: read-only, in the layout of a matrix.
struct TableRowsModel
    : BufferizableOpInterface::ExternalModel<TableRowsModel, TableRowsOp> {
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
  bool isWritable(Operation *, Value, const AnalysisState &) const {
    return false;
  }

  FailureOr<BufferLikeType> getBufferType(Operation *, Value value,
                                          const BufferizationOptions &,
                                          const BufferizationState &,
                                          SmallVector<Value> &) const {
    auto type = cast<RankedTensorType>(value.getType());
    return cast<BufferLikeType>(
        MemRefType::get(type.getShape(), type.getElementType()));
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto rows = cast<TableRowsOp>(op);
    FailureOr<Value> ids = getBuffer(rewriter, rows.getIds(), options, state);
    if (failed(ids))
      return failure();
    auto bufferType = [](Value value) -> Type {
      auto type = cast<RankedTensorType>(value.getType());
      return MemRefType::get(type.getShape(), type.getElementType());
    };
    auto buffers =
        TableRowsOp::create(rewriter, op->getLoc(), bufferType(rows.getRows()),
                            bufferType(rows.getIndex()), rows.getTable(), *ids);
    replaceOpWithBufferizedValues(rewriter, op, buffers->getResults());
    return success();
  }
};

} // namespace

void stem::registerBufferizableModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, StemDialect *) {
    PackedMatmulOp::attachInterface<PackedMatmulModel>(*context);
    PackedGatherOp::attachInterface<PackedGatherModel>(*context);
    KVAppendOp::attachInterface<KVAppendModel>(*context);
    TableRowsOp::attachInterface<TableRowsModel>(*context);
  });
}
