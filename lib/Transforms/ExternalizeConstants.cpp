//===- ExternalizeConstants.cpp - Weights into a safetensors file ---------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "InlineWeights.h"

#include "stem/Dialect/Stem/StemDialect.h"
#include "stem/Model/Safetensors.h"
#include "stem/Support/Error.h"
#include "stem/Support/Format.h"
#include "stem/Transforms/OptionChecks.h"
#include "stem/Transforms/Passes.h"

#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

#include <array>
#include <filesystem>
#include <fstream>

namespace stem {
#define GEN_PASS_DEF_STEMEXTERNALIZECONSTANTSPASS
#include "stem/Transforms/Passes.h.inc"
} // namespace stem

using namespace mlir;
using namespace stem;

namespace {

/// A parameter to be: the constants that it replaces and its data.
struct Constant {
  SmallVector<Operation *> ops;
  ElementsAttr values;
  DType dtype;
  std::string key;
  Operation *symbolTable;

  RankedTensorType getType() const {
    return cast<RankedTensorType>(values.getType());
  }
};

} // namespace

/// The bytes of one copy of what repeats: the element of a splat, else the
/// whole constant. Nothing when they are not there.
static std::optional<ArrayRef<char>> getBytes(ElementsAttr values) {
  if (auto dense = dyn_cast<DenseElementsAttr>(values))
    return dense.getRawData();
  auto resource = cast<DenseResourceElementsAttr>(values);
  if (AsmResourceBlob *blob = resource.getRawHandle().getBlob())
    return blob->getData();
  return std::nullopt;
}

static void writeConstant(SafetensorsWriter &writer, const Constant &constant) {
  const ArrayRef<char> bytes = *getBytes(constant.values);
  const std::span<const std::byte> span =
      std::as_bytes(std::span(bytes.data(), bytes.size()));
  if (!isa<DenseElementsAttr>(constant.values) || !constant.values.isSplat()) {
    writer.write(span);
    return;
  }
  constexpr uint64_t kPieceElements = 1 << 16;
  const auto elements =
      static_cast<uint64_t>(constant.getType().getNumElements());
  std::vector<std::byte> piece;
  for (uint64_t i = 0; i < std::min(kPieceElements, elements); ++i)
    piece.insert(piece.end(), span.begin(), span.end());
  for (uint64_t done = 0; done < elements; done += kPieceElements)
    writer.write(std::span(piece).first(
        std::min(kPieceElements, elements - done) * span.size()));
}

/// Whether nothing is lost with the file: it is empty, or begins as a
/// safetensors file does, with the size of a header and the brace that opens
/// it.
static bool mayReplace(const std::string &path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) || error)
    return false;
  if (std::filesystem::file_size(path, error) == 0 && !error)
    return true;
  std::ifstream file(path, std::ios::binary);
  std::array<char, 9> start{};
  return file.read(start.data(), start.size()) && start[8] == '{';
}

/// Refuses a file that is something else, as the module that is read, and one
/// for which there is no space: a short splat may be terabytes.
static void checkTarget(const std::string &path, ArrayRef<Constant> constants) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(path, ignored) && !mayReplace(path))
    fail("{}: exists and is not a safetensors file; stem-file names the file "
         "to write",
         path);
  uint64_t bytes = 0;
  for (const Constant &constant : constants) {
    std::optional<uint64_t> size =
        dtypeBytes(constant.dtype,
                   static_cast<uint64_t>(constant.getType().getNumElements()));
    bytes = llvm::SaturatingAdd(bytes, size.value_or(UINT64_MAX));
  }
  fs::path folder = fs::path(path).parent_path();
  fs::space_info space = fs::space(folder.empty() ? "." : folder, ignored);
  if (!ignored && bytes > space.available)
    fail("{}: the constants take {}, but only {} are free there", path,
         formatBytes(static_cast<double>(bytes)),
         formatBytes(static_cast<double>(space.available)));
}

static void writeFile(const std::string &path, ArrayRef<Constant> constants) {
  checkTarget(path, constants);
  std::vector<TensorDeclaration> declarations;
  for (const Constant &constant : constants) {
    ArrayRef<int64_t> shape = constant.getType().getShape();
    declarations.push_back({constant.key, constant.dtype,
                            std::vector<uint64_t>(shape.begin(), shape.end())});
  }
  SafetensorsWriter writer(path, std::move(declarations));
  for (const Constant &constant : constants)
    writeConstant(writer, constant);
  writer.finish();
}

namespace {

struct ExternalizeConstantsPass
    : public stem::impl::StemExternalizeConstantsPassBase<
          ExternalizeConstantsPass> {
  using Base::Base;

  LogicalResult initialize(MLIRContext *context) override {
    return checkOption(context, minElements, {.least = 1});
  }

  void runOnOperation() override {
    if (file.empty()) {
      getOperation().emitError()
          << "stem-externalize-constants needs a file to write: give it "
             "stem-file=PATH";
      return signalPassFailure();
    }
    SmallVector<Constant> constants;
    if (failed(collect(constants)))
      return signalPassFailure();
    if (constants.empty()) {
      remark::missed(getOperation().getLoc(),
                     remark::RemarkOpts::name("externalize")
                         .category("stem-externalize-constants"))
          << remark::reason("no float constant has {0} elements or more; no "
                            "file is written",
                            static_cast<int64_t>(minElements));
      return;
    }
    nameConstants(constants);
    try {
      writeFile(file, constants);
    } catch (const std::exception &error) {
      getOperation().emitError() << error.what();
      return signalPassFailure();
    }
    for (const Constant &constant : constants)
      replace(constant);
  }

private:
  LogicalResult collect(SmallVectorImpl<Constant> &constants);
  void nameConstants(MutableArrayRef<Constant> constants);
  void replace(const Constant &constant);
};

} // namespace

LogicalResult
ExternalizeConstantsPass::collect(SmallVectorImpl<Constant> &constants) {
  // A resource under one symbol table is one parameter.
  llvm::DenseMap<std::pair<Operation *, Attribute>, size_t> resources;
  auto result = getOperation().walk([&](Operation *op) {
    Operation *symbolTable = SymbolTable::getNearestSymbolTable(op);
    std::optional<InlineWeight> weight = getInlineWeight(op, minElements);
    if (!weight || !symbolTable)
      return WalkResult::advance();
    auto [values, dtype] = *weight;
    auto type = cast<RankedTensorType>(values.getType());
    if (auto resource = dyn_cast<DenseResourceElementsAttr>(values)) {
      std::optional<ArrayRef<char>> bytes = getBytes(values);
      const auto elements = static_cast<uint64_t>(type.getNumElements());
      const std::optional<uint64_t> wanted = dtypeBytes(dtype, elements);
      if (!bytes || !wanted || bytes->size() != *wanted) {
        op->emitError() << "the resource \"" << resource.getRawHandle().getKey()
                        << "\" holds " << (bytes ? bytes->size() : 0)
                        << " bytes, wanted " << wanted.value_or(0) << " for "
                        << type
                        << "; export the module again without leaving "
                           "resources out";
        return WalkResult::interrupt();
      }
      auto [known, isNew] =
          resources.try_emplace({symbolTable, values}, constants.size());
      if (!isNew) {
        constants[known->second].ops.push_back(op);
        return WalkResult::advance();
      }
    }
    constants.push_back({{op}, values, dtype, {}, symbolTable});
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

void ExternalizeConstantsPass::nameConstants(
    MutableArrayRef<Constant> constants) {
  llvm::StringSet<> used;
  getOperation().walk([&](Operation *op) {
    if (auto param = dyn_cast<ParamOp>(op))
      used.insert(param.getKey());
    if (auto symbol = dyn_cast<SymbolOpInterface>(op))
      used.insert(symbol.getName());
  });
  llvm::StringMap<unsigned> counts;
  for (Constant &constant : constants) {
    std::string base;
    if (auto resource = dyn_cast<DenseResourceElementsAttr>(constant.values)) {
      base = resource.getRawHandle().getKey().str();
    } else {
      auto function =
          constant.ops.front()->getParentOfType<FunctionOpInterface>();
      StringRef scope = function ? function.getName() : "constant";
      base = (scope + "." + Twine(counts[scope]++)).str();
    }
    constant.key = base;
    for (unsigned suffix = 1; !used.insert(constant.key).second; ++suffix)
      constant.key = base + "_" + std::to_string(suffix);
  }
}

void ExternalizeConstantsPass::replace(const Constant &constant) {
  // After the parameters that stand first, in the order of the constants.
  Block &body = constant.symbolTable->getRegion(0).front();
  auto position =
      llvm::find_if(body, [](Operation &op) { return !isa<ParamOp>(op); });
  OpBuilder builder(&body, position);
  ParamOp::create(builder, constant.ops.front()->getLoc(), constant.key,
                  constant.key, constant.getType());
  for (Operation *op : constant.ops) {
    builder.setInsertionPoint(op);
    Value load = ParamLoadOp::create(builder, op->getLoc(), constant.getType(),
                                     constant.key);
    op->getResult(0).replaceAllUsesWith(load);
    op->erase();
  }
}
