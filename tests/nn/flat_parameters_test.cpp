// Parameters in their flat buffer: counts, places, runs, ties.
#include "lockstep/nn/parameters/flat_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/plan/arithmetic.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::nn {
namespace {

using ::testing::HasSubstr;

FlatParameters flat_of(const Model& model, const nn::Setup& setup) {
  const auto ops = make_reference_ops();
  return {model, specs_of(model, setup, *ops)};
}

FlatParameters flat_of(Tiny tiny) { return flat_of(make_tiny(tiny), tiny_setup(tiny)); }

const nn::Setup kOneToken = {.shape = {.batch = 1, .sequence = 1, .source_sequence = 1}};

TEST(FlatParameters, AreAsManyAsTheArithmeticSaysForEveryKnownModel) {
  for (const plan::ModelShape& known : plan::known_models()) {
    const plan::ModelShape shape = trainable(known);
    const FlatParameters flat = flat_of(make_model(shape), kOneToken);
    EXPECT_EQ(flat.count(), plan::count_parameters(shape).total()) << shape.name;
  }
}

TEST(FlatParameters, AreAsManyAsTheArithmeticSaysForOddShapes) {
  for (const plan::Family family : plan::kAllFamilies) {
    for (const bool biases : {true, false}) {
      for (const plan::Head head : {plan::Head::kTied, plan::Head::kOwn}) {
        plan::ModelShape shape = tiny_shape(family);
        const bool has_none = shape.has_experts() || shape.parts().relative_bias;
        if (has_none && biases) continue;
        shape.biases = biases;
        if (family != plan::Family::kBert) shape.head = head;
        const FlatParameters flat = flat_of(make_model(shape), kOneToken);
        EXPECT_EQ(flat.count(), plan::count_parameters(shape).total())
            << name(family) << ", biases " << biases;
      }
    }
  }
}

TEST(FlatParameters, StandInRangesOfBlocksLastBlockFirst) {
  for (const Tiny tiny : kAllTiny) {
    const FlatParameters flat = flat_of(tiny);
    std::size_t end = 0;
    for (std::size_t block = flat.blocks(); block-- > 0;) {
      EXPECT_EQ(flat.range(block).first, end);
      end = flat.range(block).end();
    }
    EXPECT_EQ(end, flat.elements());
    std::size_t last_end = 0;
    for (const FlatParameter& parameter : flat.all()) {
      EXPECT_EQ(parameter.offset % FlatParameters::kAlignment, 0u);
      EXPECT_GE(parameter.offset, last_end) << parameter.name << " overlaps the one before";
      last_end = parameter.offset + parameter.shape.elements();
      EXPECT_GE(parameter.offset, flat.range(parameter.block).first);
      EXPECT_LE(last_end, flat.range(parameter.block).end());
    }
  }
}

TEST(FlatParameters, OfABlockAreTwoRunsThoseThatDecayFirst) {
  const FlatParameters flat = flat_of(Tiny::kGpt2);
  for (std::size_t block = 0; block < flat.blocks(); ++block) {
    std::size_t end = flat.range(block).first;
    bool decayed = true;
    for (const FlatRun& run : flat.runs(block)) {
      EXPECT_EQ(run.range.first, end);
      EXPECT_TRUE(decayed || !run.decays);
      decayed = run.decays;
      end = run.range.end();
      for (const FlatParameter& parameter : flat.all()) {
        const bool inside = parameter.offset >= run.range.first && parameter.offset < end;
        EXPECT_TRUE(!inside || parameter.decays == run.decays) << parameter.name;
      }
    }
    EXPECT_EQ(end, flat.range(block).end());
  }
  EXPECT_TRUE(flat.find("layer.1.mlp.up.weight").decays);
  EXPECT_TRUE(flat.find("embedding.tokens").decays);
  EXPECT_FALSE(flat.find("layer.1.mlp.up.bias").decays);
  EXPECT_FALSE(flat.find("layer.0.norm2.gain").decays);
}

TEST(FlatParameters, WithinARunTheLastDeclaredIsFirst) {
  const FlatParameters flat = flat_of(Tiny::kGpt2);
  EXPECT_LT(flat.find("layer.0.mlp.down.weight").offset, flat.find("layer.0.mlp.up.weight").offset);
  EXPECT_LT(flat.find("layer.0.mlp.up.weight").offset,
            flat.find("layer.0.attention.qkv.weight").offset);
  EXPECT_LT(flat.find("layer.0.mlp.down.bias").offset, flat.find("layer.0.norm1.gain").offset);
}

TEST(FlatParameters, ThatAreTiedAreTheirOwners) {
  const FlatParameters gpt2 = flat_of(Tiny::kGpt2);
  EXPECT_EQ(&gpt2.find("head.logits.weight"), &gpt2.find("embedding.tokens"));
  // Tied to what is tied itself: one table for source, target and logits.
  const FlatParameters translator = flat_of(Tiny::kEncoderDecoder);
  EXPECT_EQ(translator.find("head.logits.weight").name, "source.tokens");
  EXPECT_EQ(translator.find("target.tokens").name, "source.tokens");
}

TEST(FlatParameters, AreFoundByNameOrTheNearestIsNamed) {
  const FlatParameters flat = flat_of(Tiny::kGpt2);
  try {
    flat.find("layer.0.mlp.up.wieght");
    FAIL() << "found";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("layer.0.mlp.up.weight"));
  }
}

// Declares what a test gives it.
class Declared : public Block {
 public:
  Declared(std::string name, std::vector<ParameterSpec> parameters, bool last)
      : name_(std::move(name)), parameters_(std::move(parameters)), last_(last) {}
  std::string name() const override { return name_; }
  Shape output(const nn::Setup&) const override { return {last_ ? 0 : 1}; }
  BlockSpec spec(const nn::Setup&, const Ops&) const override {
    return {.parameters = parameters_, .tensors = {}};
  }
  void forward(const Pass&) override {}
  void restore(const Pass&) override {}
  void backward(const Pass&) override {}

 private:
  std::string name_;
  std::vector<ParameterSpec> parameters_;
  bool last_;
};

std::string refusal_of(std::vector<ParameterSpec> first, std::vector<ParameterSpec> last,
                       std::string name_of_last = "b") {
  try {
    std::vector<std::unique_ptr<Block>> blocks;
    blocks.push_back(std::make_unique<Declared>("a", std::move(first), false));
    blocks.push_back(std::make_unique<Declared>(std::move(name_of_last), std::move(last), true));
    flat_of(Model("m", std::move(blocks)), nn::Setup{});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "nothing was thrown";
}

ParameterSpec parameter(std::string name, Shape shape, std::string tied_to = {}) {
  return {.name = std::move(name),
          .shape = shape,
          .initial = {},
          .decays = true,
          .tied_to = std::move(tied_to)};
}

TEST(FlatParameters, RefuseWhatCannotBe) {
  EXPECT_THAT(refusal_of({parameter("w", {2}), parameter("w", {2})}, {}), HasSubstr("'a.w'"));
  EXPECT_THAT(refusal_of({}, {parameter("w", {2}, "a.w")}),
              HasSubstr("not a parameter of an earlier"));
  EXPECT_THAT(refusal_of({}, {parameter("v", {2}), parameter("w", {2}, "b.v")}),
              HasSubstr("not a parameter of an earlier"));
  EXPECT_THAT(refusal_of({parameter("w", {3})}, {parameter("w", {2}, "a.w")}), HasSubstr("[3]"));
  EXPECT_THAT(refusal_of({}, {}, "a"), HasSubstr("a name of its own"));
  EXPECT_EQ(refusal_of({parameter("w", {2})}, {parameter("w", {2}, "a.w")}), "nothing was thrown");
}

TEST(Model, NeedsBlocksOfWhichTheLastAloneHandsNothingOn) {
  EXPECT_THROW(Model("m", {}), Error);
  std::vector<std::unique_ptr<Block>> open;
  open.push_back(std::make_unique<Declared>("a", std::vector<ParameterSpec>{}, false));
  EXPECT_THROW(flat_of(Model("m", std::move(open)), nn::Setup{}), Error);
  std::vector<std::unique_ptr<Block>> early;
  early.push_back(std::make_unique<Declared>("a", std::vector<ParameterSpec>{}, true));
  early.push_back(std::make_unique<Declared>("b", std::vector<ParameterSpec>{}, true));
  EXPECT_THROW(flat_of(Model("m", std::move(early)), nn::Setup{}), Error);
}

}  // namespace
}  // namespace lockstep::nn
