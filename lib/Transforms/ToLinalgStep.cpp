//===- ToLinalgStep.cpp - Gradients of weights, and the loss --------------===//
//
// Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Constants.h"
#include "FFNLowering.h"
#include "TilingUtils.h"
#include "ToLinalg.h"
#include "TokenSums.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stem;

namespace {

// Pattern: linear_weight_vjp(x, c) -> sums over chunks of tokens
struct LowerLinearWeightVjp : OpRewritePattern<LinearWeightVjpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(LinearWeightVjpOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    Value never = arith::ConstantIntOp::create(b, loc, 0, 1);
    Value acc = destinationOf(b, op.getResult(),
                              {b.getIndexAttr(op.getType().getDimSize(0)),
                               b.getIndexAttr(op.getType().getDimSize(1))});
    Type element = op.getX().getType().getElementType();
    Value cotangent = convertTensor(b, loc, op.getCotangent(), element);
    b.replaceOp(op, addOuterProducts(b, loc, op.getX(), cotangent, acc, never));
    return success();
  }
};

// Pattern: linear_input_vjp(c, w) -> c w, by a plain loop nest
struct LowerLinearInputVjp : OpRewritePattern<LinearInputVjpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(LinearInputVjpOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    auto weight = dyn_cast<RankedTensorType>(op.getWeight().getType());
    if (!weight)
      return b.notifyMatchFailure(op, "the weight is packed for the other "
                                      "direction");
    explainPlainProduct(loc, op.getWeight(), "is not transposed");
    Type f32 = b.getF32Type();
    Value acc = emptyTensor(b, loc,
                            {tensor::getMixedSize(b, loc, op.getCotangent(), 0),
                             b.getIndexAttr(weight.getDimSize(1))},
                            f32);
    acc = linalg::FillOp::create(b, loc, constantF32(b, loc, 0), acc)
              .getResult(0);
    Value result = buildGeneric(
        b, loc, 3, true,
        {{op.getCotangent(), {0, 2}}, {op.getWeight(), {2, 1}}},
        {{acc, {0, 1}}}, [&](OpBuilder &nb, Location l, ValueRange a) {
          Value product =
              arith::MulFOp::create(nb, l, convertFloat(nb, l, a[0], f32),
                                    convertFloat(nb, l, a[1], f32));
          return SmallVector<Value>{
              arith::AddFOp::create(nb, l, a[2], product)};
        })[0];
    b.replaceOp(op,
                convertTensor(b, loc, result, op.getType().getElementType()));
    return success();
  }
};

// Pattern: sum_tokens(x) -> rows added up one after the other
struct LowerSumTokens : OpRewritePattern<SumTokensOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SumTokensOp op,
                                PatternRewriter &b) const override {
    Location loc = op.getLoc();
    int64_t length = op.getType().getDimSize(0);
    Value acc = tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{1, length},
                                        b.getF32Type());
    acc = addRows(b, loc, op.getX(), /*index=*/Value(), acc,
                  /*startsFromZero=*/true);
    SmallVector<ReassociationIndices> joined = {{0, 1}};
    Value sum = tensor::CollapseShapeOp::create(b, loc, acc, joined);
    b.replaceOp(op, convertTensor(b, loc, sum, op.getType().getElementType()));
    return success();
  }
};

// Pattern: sum_rows(x by index onto y) -> rows added up one after the other
struct LowerSumRows : OpRewritePattern<SumRowsOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SumRowsOp op,
                                PatternRewriter &b) const override {
    RankedTensorType type = op.getType();
    Value acc = op.getInitial();
    if (!acc) {
      std::optional<unsigned> index = returnedIndex(op.getResult());
      auto function = op->getParentOfType<func::FuncOp>();
      if (type.isDynamicDim(0) && (!index || !outputArgument(function, *index)))
        return b.notifyMatchFailure(op, "only an output tells the number of "
                                        "rows");
      acc = type.isDynamicDim(0)
                ? outputArgument(function, *index)
                : destinationOf(b, op.getResult(),
                                {b.getIndexAttr(type.getDimSize(0)),
                                 b.getIndexAttr(type.getDimSize(1))});
    }
    b.replaceOp(op, addRows(b, op.getLoc(), op.getX(), op.getIndex(), acc,
                            /*startsFromZero=*/!op.getInitial(),
                            op.getPaddingId()));
    return success();
  }
};

/// Operands and results of a loss with its gradients; the teacher's are null
/// where there is none.
struct LossValues {
  Value x, head, labels, cotangent, transposed;
  Value nll, dx, dhead;
  Value teacher, teacherHead, klCotangent, kl;

  explicit LossValues(CrossEntropyStepOp op)
      : x(op.getX()), head(op.getHead()), labels(op.getLabels()),
        cotangent(op.getCotangent()), transposed(op.getTransposed()),
        nll(op.getNll()), dx(op.getDx()), dhead(op.getDhead()) {}
  explicit LossValues(DistillationStepOp op)
      : x(op.getX()), head(op.getHead()), labels(op.getLabels()),
        cotangent(op.getNllCotangent()), transposed(op.getTransposed()),
        nll(op.getNll()), dx(op.getDx()), dhead(op.getDhead()),
        teacher(op.getTeacher()), teacherHead(op.getTeacherHead()),
        klCotangent(op.getKlCotangent()), kl(op.getKl()) {}
};

/// The loss over chunks of tokens. A chunk's logits become their own cotangent
/// tile by tile; then the head's gradient takes them as one product. The
/// teacher's logits are those of one tile.
class LossStep {
public:
  LossStep(OpBuilder &b, Location loc, const LossValues &op)
      : b(b), loc(loc), op(op), f32(b.getF32Type()) {
    WeightShape head = getWeightShape(op.head.getType());
    vocabulary = head.outputs;
    hidden = head.inputs;
    element = elementOf(op.x);
    int64_t row = vocabulary * element.getIntOrFloatBitWidth() / 8;
    chunk = std::clamp<int64_t>(kBytes / row / kTile * kTile, kTile, kMost);
    remark::passed(
        loc,
        remark::RemarkOpts::name("StemLossChunk").category("stem-to-linalg"))
        << remark::metric("Tokens", chunk)
        << remark::metric("LogitBytes", chunk * row);
  }

  /// A chunk is whole tiles: what is left of one would be left out.
  static LogicalResult verifyTiles(Operation *op, RankedTensorType x) {
    int64_t tokens = x.getDimSize(0);
    if (!ShapedType::isDynamic(tokens)) {
      if (tokens % kTile == 0)
        return success();
      return op->emitOpError()
             << "has " << tokens << " tokens, which is not a multiple of "
             << kTile;
    }
    auto function = op->getParentOfType<func::FuncOp>();
    auto tile = function->getAttrOfType<IntegerAttr>(StemDialect::kTileAttr);
    if (tile && tile.getInt() % kTile == 0)
      return success();
    return op->emitOpError()
           << "works on " << kTile << " tokens at a time, but function '"
           << function.getSymName() << "' has '" << StemDialect::kTileAttr
           << "' " << (tile ? tile.getInt() : 0)
           << ", wanted a multiple of them";
  }

  /// nll, dx, dhead, and kl where there is a teacher.
  SmallVector<Value> build() {
    OpFoldResult tokens = tensor::getMixedSize(b, loc, op.x, 0);
    OpFoldResult width = b.getIndexAttr(hidden);
    SmallVector<Value> state = {
        destinationOf(b, op.nll, {tokens}),
        emptyTensor(b, loc, {tokens, width}, f32),
        destinationOf(b, op.dhead, {b.getIndexAttr(vocabulary), width})};
    if (op.kl)
      state.push_back(destinationOf(b, op.kl, {tokens}));
    Value count = tensor::DimOp::create(b, loc, op.x, 0);
    Value zero = constantIndex(b, loc, 0);
    Value step = constantIndex(b, loc, chunk);
    auto loop = scf::ForOp::create(
        b, loc, zero, count, step, state,
        [&](OpBuilder &body, Location, Value first, ValueRange values) {
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPoint(body.getInsertionBlock(),
                              body.getInsertionPoint());
          Value left = arith::SubIOp::create(b, loc, count, first);
          Value size = arith::MinUIOp::create(b, loc, left, step);
          scf::YieldOp::create(b, loc, visit(first, size, values));
        });
    SmallVector<Value> results(loop.getResults());
    results[1] = convertTensor(b, loc, results[1], elementOf(op.dx));
    return results;
  }

private:
  static constexpr int64_t kTile = 64;
  /// Of a chunk's logits, and the most tokens of one.
  static constexpr int64_t kBytes = int64_t{64} << 20;
  static constexpr int64_t kMost = 2048;

  /// Of a tile of tokens: its scores, and their largest and sum of
  /// exponentials.
  struct Softmax {
    Value scores, max, sum;
  };

  static Type elementOf(Value value) {
    return cast<RankedTensorType>(value.getType()).getElementType();
  }

  /// One chunk: the state's new values.
  SmallVector<Value> visit(Value first, Value size, ValueRange state) {
    Value logits = tensor::EmptyOp::create(
        b, loc, ArrayRef<int64_t>{chunk, vocabulary}, element);
    Value tiles =
        arith::DivUIOp::create(b, loc, size, constantIndex(b, loc, kTile));
    SmallVector<Value> outputs = {state[0], state[1], logits};
    if (op.kl)
      outputs.push_back(state[3]);
    auto loop = scf::ForallOp::create(
        b, loc, ArrayRef<OpFoldResult>{tiles}, outputs, std::nullopt,
        [&](OpBuilder &body, Location, ValueRange arguments) {
          OpBuilder::InsertionGuard guard(b);
          b.setInsertionPoint(body.getInsertionBlock(),
                              body.getInsertionPoint());
          visitTile(first, arguments);
        });
    Value dhead = state[2];
    if (!op.dhead.use_empty()) {
      SliceRange rows = {OpFoldResult(first), OpFoldResult(size)};
      Value x = extractSlice(
          b, loc, op.x, {rows, {b.getIndexAttr(0), b.getIndexAttr(hidden)}});
      Value dlogits =
          extractSlice(b, loc, loop.getResult(2),
                       {{b.getIndexAttr(0), OpFoldResult(size)},
                        {b.getIndexAttr(0), b.getIndexAttr(vocabulary)}});
      Value isLater = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                            first, constantIndex(b, loc, 0));
      dhead = addOuterProducts(b, loc, x, dlogits, dhead, isLater);
    }
    SmallVector<Value> results = {loop.getResult(0), loop.getResult(1), dhead};
    if (op.kl)
      results.push_back(loop.getResult(3));
    return results;
  }

  /// The body of the loop over tiles: `arguments` are its number, nll, dx, the
  /// chunk's logits and kl.
  void visitTile(Value first, ValueRange arguments) {
    Value local = arith::MulIOp::create(b, loc, arguments[0],
                                        constantIndex(b, loc, kTile));
    Value row = arith::AddIOp::create(b, loc, first, local);
    SliceRange tokens = {OpFoldResult(row), b.getIndexAttr(kTile)};
    SliceRange ownTokens = {OpFoldResult(local), b.getIndexAttr(kTile)};
    SliceRange columns = {b.getIndexAttr(0), b.getIndexAttr(hidden)};
    SliceRange words = {b.getIndexAttr(0), b.getIndexAttr(vocabulary)};
    Value labels = extractSlice(b, loc, op.labels, {tokens});
    Softmax own = softmaxOf(tokens, op.x, op.head);
    Value nll = losses(own.scores, own.max, own.sum, labels,
                       extractSlice(b, loc, arguments[1], {tokens}));
    Softmax teacher;
    Value kl;
    if (op.teacher) {
      teacher = softmaxOf(tokens, op.teacher, op.teacherHead);
      kl = divergences(own, teacher, labels,
                       extractSlice(b, loc, arguments[4], {tokens}));
    }
    Value gradient =
        cotangents(own, teacher, labels, tokens,
                   extractSlice(b, loc, arguments[3], {ownTokens, words}));
    Value dx = extractSlice(b, loc, arguments[2], {tokens, columns});
    dx = multiplyBack(gradient, dx);
    auto terminator = scf::InParallelOp::create(b, loc);
    OpBuilder inParallel = OpBuilder::atBlockBegin(terminator.getBody());
    parallelInsertSlice(inParallel, loc, nll, arguments[1], {tokens});
    parallelInsertSlice(inParallel, loc, dx, arguments[2], {tokens, columns});
    parallelInsertSlice(inParallel, loc, gradient, arguments[3],
                        {ownTokens, words});
    if (kl)
      parallelInsertSlice(inParallel, loc, kl, arguments[4], {tokens});
  }

  Softmax softmaxOf(SliceRange tokens, Value hiddens, Value head) {
    Value x =
        extractSlice(b, loc, hiddens,
                     {tokens,
                      {b.getIndexAttr(0),
                       b.getIndexAttr(getWeightShape(head.getType()).inputs)}});
    Value scores = tensor::EmptyOp::create(
        b, loc, ArrayRef<int64_t>{kTile, vocabulary}, f32);
    scores = multiplyInto(b, loc, x, head, scores);
    Value max = reduceRows(scores, -std::numeric_limits<float>::infinity(), {},
                           /*isMax=*/true);
    return {scores, max, reduceRows(scores, 0.0f, max, /*isMax=*/false)};
  }

  Value multiplyBack(Value gradient, Value dx) {
    if (op.transposed)
      return multiplyInto(b, loc, gradient, op.transposed, dx);
    explainPlainProduct(loc, op.head, "is not transposed");
    dx =
        linalg::FillOp::create(b, loc, constantF32(b, loc, 0), dx).getResult(0);
    return buildGeneric(
        b, loc, 3, true, {{gradient, {0, 2}}, {op.head, {2, 1}}},
        {{dx, {0, 1}}}, [&](OpBuilder &nb, Location l, ValueRange a) {
          Value product =
              arith::MulFOp::create(nb, l, convertFloat(nb, l, a[0], f32),
                                    convertFloat(nb, l, a[1], f32));
          return SmallVector<Value>{
              arith::AddFOp::create(nb, l, a[2], product)};
        })[0];
  }

  /// The largest of each row, or the sum of exp(score - max).
  Value reduceRows(Value scores, float start, Value max, bool isMax) {
    Value initial =
        tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{kTile}, f32);
    initial =
        linalg::FillOp::create(b, loc, constantF32(b, loc, start), initial)
            .getResult(0);
    SmallVector<Access> inputs = {{scores, {0, 1}}};
    if (max)
      inputs.push_back({max, {0}});
    return buildGeneric(
        b, loc, 2, true, inputs, {{initial, {0}}},
        [&](OpBuilder &nb, Location l, ValueRange a) {
          if (isMax)
            return SmallVector<Value>{
                arith::MaximumFOp::create(nb, l, a.back(), a[0])};
          Value shift = arith::SubFOp::create(nb, l, a[0], a[1]);
          return SmallVector<Value>{arith::AddFOp::create(
              nb, l, a.back(), math::ExpOp::create(nb, l, shift))};
        })[0];
  }

  Value isIgnored(OpBuilder &nb, Location l, Value label) {
    Value ignored = arith::ConstantIntOp::create(nb, l, -100, 32);
    return arith::CmpIOp::create(nb, l, arith::CmpIPredicate::eq, label,
                                 ignored);
  }

  /// log(sum) + max - the label's score, 0 where there is no label.
  Value losses(Value scores, Value max, Value sum, Value labels, Value out) {
    return buildGeneric(
        b, loc, 1, false, {{max, {0}}, {sum, {0}}, {labels, {0}}}, {{out, {0}}},
        [&](OpBuilder &nb, Location l, ValueRange a) {
          Value skip = isIgnored(nb, l, a[2]);
          Value label =
              arith::IndexCastOp::create(nb, l, nb.getIndexType(), a[2]);
          label = arith::SelectOp::create(nb, l, skip, constantIndex(nb, l, 0),
                                          label);
          Value token = linalg::IndexOp::create(nb, l, 0);
          Value score = tensor::ExtractOp::create(nb, l, scores,
                                                  ValueRange{token, label});
          Value nll = arith::AddFOp::create(
              nb, l, math::LogOp::create(nb, l, a[1]), a[0]);
          nll = arith::SubFOp::create(nb, l, nll, score);
          return SmallVector<Value>{
              arith::SelectOp::create(nb, l, skip, constantF32(nb, l, 0), nll)};
        })[0];
  }

  /// [kTile] of what `body` makes of a token's elements of `inputs`.
  Value perToken(ArrayRef<Value> inputs, GenericBody body, Value out = {}) {
    if (!out)
      out = tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{kTile}, f32);
    SmallVector<Access> accesses;
    for (Value input : inputs)
      accesses.push_back({input, {0}});
    return buildGeneric(b, loc, 1, false, accesses, {{out, {0}}}, body)[0];
  }

  /// sum_v q (log q - log p), 0 where there is no label. The logits' difference
  /// is taken first, so that what is summed is as small as the result.
  Value divergences(const Softmax &own, const Softmax &teacher, Value labels,
                    Value out) {
    // log sum_v exp(score) of the teacher less the student's
    Value shifts = perToken(
        {own.max, own.sum, teacher.max, teacher.sum},
        [](OpBuilder &nb, Location l, ValueRange a) {
          Value maxima = arith::SubFOp::create(nb, l, a[2], a[0]);
          Value sums =
              arith::SubFOp::create(nb, l, math::LogOp::create(nb, l, a[3]),
                                    math::LogOp::create(nb, l, a[1]));
          return SmallVector<Value>{arith::AddFOp::create(nb, l, maxima, sums)};
        });
    Value sums = tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>{kTile}, f32);
    sums = linalg::FillOp::create(b, loc, constantF32(b, loc, 0), sums)
               .getResult(0);
    sums = buildGeneric(
        b, loc, 2, true,
        {{own.scores, {0, 1}},
         {teacher.scores, {0, 1}},
         {teacher.max, {0}},
         {shifts, {0}}},
        {{sums, {0}}}, [](OpBuilder &nb, Location l, ValueRange a) {
          Value power = math::ExpOp::create(
              nb, l, arith::SubFOp::create(nb, l, a[1], a[2]));
          Value difference = arith::SubFOp::create(
              nb, l, arith::SubFOp::create(nb, l, a[1], a[0]), a[3]);
          Value term = arith::MulFOp::create(nb, l, power, difference);
          return SmallVector<Value>{
              arith::AddFOp::create(nb, l, a.back(), term)};
        })[0];
    return perToken(
        {sums, teacher.sum, labels},
        [&](OpBuilder &nb, Location l, ValueRange a) {
          Value kl = arith::DivFOp::create(nb, l, a[0], a[1]);
          return SmallVector<Value>{arith::SelectOp::create(
              nb, l, isIgnored(nb, l, a[2]), constantF32(nb, l, 0), kl)};
        },
        out);
  }

  /// A cotangent, 0 where there is no label.
  Value factorsOf(Value cotangent, Value labels, SliceRange tokens) {
    return perToken({extractSlice(b, loc, cotangent, {tokens}), labels},
                    [&](OpBuilder &nb, Location l, ValueRange a) {
                      Value c = convertFloat(nb, l, a[0], f32);
                      return SmallVector<Value>{
                          arith::SelectOp::create(nb, l, isIgnored(nb, l, a[1]),
                                                  constantF32(nb, l, 0), c)};
                    });
  }

  static Value probability(OpBuilder &nb, Location l, Value score, Value max,
                           Value sum) {
    Value shift = arith::SubFOp::create(nb, l, score, max);
    return arith::DivFOp::create(nb, l, math::ExpOp::create(nb, l, shift), sum);
  }

  /// (p - [n is the label]) cotangent, plus (p - q) times that of kl.
  Value cotangents(const Softmax &own, const Softmax &teacher, Value labels,
                   SliceRange tokens, Value out) {
    SmallVector<Access> inputs = {
        {own.scores, {0, 1}},
        {own.max, {0}},
        {own.sum, {0}},
        {labels, {0}},
        {factorsOf(op.cotangent, labels, tokens), {0}}};
    if (op.teacher)
      inputs.append({{teacher.scores, {0, 1}},
                     {teacher.max, {0}},
                     {teacher.sum, {0}},
                     {factorsOf(op.klCotangent, labels, tokens), {0}}});
    return buildGeneric(
        b, loc, 2, false, inputs, {{out, {0, 1}}},
        [&](OpBuilder &nb, Location l, ValueRange a) {
          Value p = probability(nb, l, a[0], a[1], a[2]);
          Value word = linalg::IndexOp::create(nb, l, 1);
          word = arith::IndexCastOp::create(nb, l, nb.getI32Type(), word);
          Value isLabel = arith::CmpIOp::create(nb, l, arith::CmpIPredicate::eq,
                                                word, a[3]);
          Value hit = arith::SelectOp::create(
              nb, l, isLabel, constantF32(nb, l, 1), constantF32(nb, l, 0));
          Value g = arith::MulFOp::create(
              nb, l, arith::SubFOp::create(nb, l, p, hit), a[4]);
          if (op.teacher) {
            Value q = probability(nb, l, a[5], a[6], a[7]);
            Value more = arith::MulFOp::create(
                nb, l, arith::SubFOp::create(nb, l, p, q), a[8]);
            g = arith::AddFOp::create(nb, l, g, more);
          }
          return SmallVector<Value>{convertFloat(nb, l, g, element)};
        })[0];
  }

  OpBuilder &b;
  Location loc;
  LossValues op;
  Type f32, element;
  int64_t vocabulary, hidden, chunk;
};

bool lacksTransposedHead(Value head, Value transposed) {
  return !transposed && isa<PackedType>(head.getType());
}

struct LowerCrossEntropyStep : OpRewritePattern<CrossEntropyStepOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(CrossEntropyStepOp op,
                                PatternRewriter &b) const override {
    if (lacksTransposedHead(op.getHead(), op.getTransposed()))
      return b.notifyMatchFailure(op, "the head is packed, and there is no "
                                      "transposed form of it");
    b.replaceOp(op, LossStep(b, op.getLoc(), LossValues(op)).build());
    return success();
  }
};

struct LowerDistillationStep : OpRewritePattern<DistillationStepOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(DistillationStepOp op,
                                PatternRewriter &b) const override {
    if (lacksTransposedHead(op.getHead(), op.getTransposed()))
      return b.notifyMatchFailure(op, "the head is packed, and there is no "
                                      "transposed form of it");
    SmallVector<Value> results =
        LossStep(b, op.getLoc(), LossValues(op)).build();
    b.replaceOp(op, {results[0], results[3], results[1], results[2]});
    return success();
  }
};

} // namespace

//===----------------------------------------------------------------------===//
// What has a lowering
//===----------------------------------------------------------------------===//

static LogicalResult verifyTypes(Operation *op) {
  for (Type type :
       llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes())) {
    if (getElementTypeOrSelf(type).isF64())
      return op->emitOpError("computes in f64, which only the interpreter "
                             "does");
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (tensor && tensor.getNumDynamicDims() > tensor.isDynamicDim(0))
      return op->emitOpError() << "has an operand or result " << tensor
                               << "; only the number of rows may be dynamic";
  }
  return success();
}

static LogicalResult expectStatic(Operation *op, RankedTensorType sum) {
  if (sum.hasStaticShape())
    return success();
  return op->emitOpError() << "gives " << sum
                           << ", whose rows nothing tells: they must be static";
}

static LogicalResult expectFactors(Operation *op, Value x) {
  Type element = getElementTypeOrSelf(x.getType());
  if (element.isF32() || element.isBF16())
    return success();
  return op->emitOpError() << "multiplies " << element
                           << "; products over tokens are of f32 or bf16";
}

static LogicalResult expectSumsInF32(Operation *op, const char *what,
                                     Value sum) {
  Type element = getElementTypeOrSelf(sum.getType());
  if (element.isF32())
    return success();
  return op->emitOpError() << "gives " << what << " in " << element
                           << "; they are added up in f32";
}

static LogicalResult verify(LinearWeightVjpOp op) {
  if (failed(expectStatic(op, op.getType())) ||
      failed(expectFactors(op, op.getX())))
    return failure();
  return expectSumsInF32(op, "gradients", op.getResult());
}

static LogicalResult verify(SumTokensOp op) {
  if (failed(expectStatic(op, op.getType())))
    return failure();
  if (op.getType().getDimSize(0) == 0)
    return op.emitOpError("has a result without elements");
  return success();
}

static LogicalResult verify(SumRowsOp op) {
  if (op.getInitial() || op.getType().hasStaticShape())
    return success();
  std::optional<unsigned> index = returnedIndex(op.getResult());
  if (index && outputArgument(op->getParentOfType<func::FuncOp>(), *index))
    return success();
  return op.emitOpError("is not returned in a 'stem.output', which alone tells "
                        "its number of rows");
}

static LogicalResult verify(LinearInputVjpOp op) {
  if (!isa<PackedType>(op.getWeight().getType()))
    return success();
  return op.emitOpError("has a weight that is packed for the other direction; "
                        "run stem-transpose-weights before stem-pack-weights");
}

template <typename Op>
static LogicalResult verifyLossStep(Op op, ArrayRef<Value> losses) {
  if (getWeightShape(op.getHead().getType()).outputs == 0)
    return op.emitOpError("has a head without outputs");
  if (isa<PackedType>(op.getHead().getType()) && !op.getTransposed())
    return op.emitOpError("has a packed head and no transposed form of it; run "
                          "stem-transpose-weights before stem-pack-weights");
  if (failed(expectFactors(op, op.getX())))
    return failure();
  for (Value loss : losses)
    if (failed(expectSumsInF32(op, "losses", loss)))
      return failure();
  if (failed(expectSumsInF32(op, "gradients", op.getDhead())))
    return failure();
  return LossStep::verifyTiles(op, op.getX().getType());
}

static LogicalResult verify(CrossEntropyStepOp op) {
  return verifyLossStep(op, {op.getNll()});
}

static LogicalResult verify(DistillationStepOp op) {
  if (failed(expectFactors(op, op.getTeacher())))
    return failure();
  return verifyLossStep(op, {op.getNll(), op.getKl()});
}

LogicalResult stem::verifyStepOp(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<LinearWeightVjpOp, LinearInputVjpOp, SumTokensOp, SumRowsOp,
            CrossEntropyStepOp, DistillationStepOp>([](auto known) {
        return success(succeeded(verifyTypes(known)) &&
                       succeeded(verify(known)));
      })
      .Default(success());
}

void stem::populateStepPatterns(RewritePatternSet &patterns) {
  patterns.add<LowerLinearWeightVjp, LowerLinearInputVjp, LowerSumTokens,
               LowerSumRows, LowerCrossEntropyStep, LowerDistillationStep>(
      patterns.getContext());
}
