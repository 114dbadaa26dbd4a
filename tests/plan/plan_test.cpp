// The model arithmetic against published counts and the formulas of the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/text/number.h"
#include "lockstep/plan/memory.h"

namespace lockstep::plan {
namespace {

using ::testing::HasSubstr;

std::string why_not(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

Count parameters_of(std::string_view model) { return count_parameters(find_model(model)).total(); }

std::string gigabytes(Count bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e9);
}

TEST(Parameters, AreThePublishedCounts) {
  EXPECT_EQ(parameters_of("gpt2-124m"), 124'439'808u);
  EXPECT_EQ(parameters_of("gpt2-355m"), 354'823'168u);
  EXPECT_EQ(parameters_of("gpt2-774m"), 774'030'080u);
  EXPECT_EQ(parameters_of("gpt2-1558m"), 1'557'611'200u);
  EXPECT_EQ(parameters_of("bert-base"), 109'482'240u);
  EXPECT_EQ(parameters_of("bert-large"), 335'141'888u);
  EXPECT_EQ(parameters_of("llama-7b"), 6'738'415'616u);
  EXPECT_EQ(parameters_of("llama2-70b"), 68'976'648'192u);
  EXPECT_EQ(parameters_of("llama3-8b"), 8'030'261'248u);
  EXPECT_EQ(parameters_of("mistral-7b"), 7'241'732'096u);
  EXPECT_EQ(parameters_of("qwen2-0.5b"), 494'032'768u);
  EXPECT_EQ(parameters_of("qwen2-7b"), 7'615'616'512u);
  EXPECT_EQ(parameters_of("mixtral-8x7b"), 46'702'792'704u);
  EXPECT_EQ(parameters_of("qwen3-0.6b"), 596'049'920u);
  EXPECT_EQ(parameters_of("qwen3-8b"), 8'190'735'360u);
  EXPECT_EQ(parameters_of("phi3-3.8b"), 3'821'079'552u);
  EXPECT_EQ(parameters_of("gemma2-2b"), 2'614'341'888u);
  EXPECT_EQ(parameters_of("gemma2-9b"), 9'241'705'984u);
  EXPECT_EQ(parameters_of("gemma2-27b"), 27'227'128'320u);
  EXPECT_EQ(parameters_of("pythia-160m"), 162'322'944u);
  EXPECT_EQ(parameters_of("pythia-1.4b"), 1'414'647'808u);
  EXPECT_EQ(parameters_of("t5-small"), 60'506'624u);
  EXPECT_EQ(parameters_of("t5-base"), 222'903'552u);
  EXPECT_EQ(parameters_of("t5-large"), 737'668'096u);
  EXPECT_EQ(parameters_of("flan-t5-small"), 76'961'152u);
  EXPECT_EQ(parameters_of("flan-t5-base"), 247'577'856u);
  EXPECT_EQ(parameters_of("flan-t5-large"), 783'150'080u);
  EXPECT_EQ(parameters_of("flan-t5-xl"), 2'849'757'184u);
  EXPECT_EQ(parameters_of("gpt3-175b"), 174'604'259'328u);
  EXPECT_NEAR(static_cast<double>(parameters_of("gpt3-175b")), 175e9, 0.005 * 175e9);
}

TEST(Parameters, OfBertWithTheMaskedLanguageHeadAreThePublishedCount) {
  ModelShape shape = find_model("bert-base");
  shape.head = Head::kMaskedLanguage;
  EXPECT_EQ(count_parameters(shape).total(), 109'514'298u);
}

TEST(Parameters, OfTheGpt2FamilyFollowTheClosedForm) {
  for (const ModelShape& shape : known_models()) {
    if (shape.family != Family::kGpt2) continue;
    const Count h = shape.hidden;
    EXPECT_EQ(count_parameters(shape).total(), shape.vocabulary * h + shape.positions * h +
                                                   shape.layers * (12 * h * h + 13 * h) + 2 * h)
        << shape.name;
  }
}

TEST(Parameters, AreCountedPartByPart) {
  const Parameters parts = count_parameters(find_model("gpt2-124m"));
  EXPECT_EQ(parts.embedding, 50257u * 768);
  EXPECT_EQ(parts.positions, 1024u * 768);
  EXPECT_EQ(parts.token_types, 0u);
  EXPECT_EQ(parts.attention, 12u * (4 * 768 * 768 + 4 * 768));
  EXPECT_EQ(parts.feed_forward, 12u * (8 * 768 * 768 + 5 * 768));
  EXPECT_EQ(parts.norms, 25u * 2 * 768);
  EXPECT_EQ(parts.head, 0u);
}

TEST(Parameters, WithoutBiasesOrWithAHeadOfItsOwn) {
  ModelShape shape = find_model("gpt2-124m");
  shape.biases = false;
  const Parameters bare = count_parameters(shape);
  EXPECT_EQ(bare.attention, 12u * 4 * 768 * 768);
  EXPECT_EQ(bare.feed_forward, 12u * 8 * 768 * 768);
  EXPECT_EQ(bare.norms, 25u * 768);
  shape.head = Head::kOwn;
  EXPECT_EQ(count_parameters(shape).head, 50257u * 768);
  EXPECT_EQ(count_parameters(shape).total(), bare.total() + 50257u * 768);
}

TEST(ModelShape, TheUsualFeedForwardOfLlamaIsThatOfItsPublishedSizes) {
  EXPECT_EQ(usual_feed_forward(Family::kLlama, 4096), 11008u);
  EXPECT_EQ(usual_feed_forward(Family::kLlama, 5120), 13824u);
  EXPECT_EQ(usual_feed_forward(Family::kLlama, 8192), 22016u);
  EXPECT_EQ(usual_feed_forward(Family::kGpt2, 768), 3072u);
}

TEST(ModelShape, AnUnknownNameGetsTheNearestAndTheList) {
  const std::string why = why_not([] { find_model("gpt3-157b"); });
  EXPECT_THAT(why, HasSubstr("unknown model 'gpt3-157b' (did you mean gpt3-175b?)"));
  for (const ModelShape& model : known_models()) EXPECT_THAT(why, HasSubstr(model.name));
  EXPECT_THAT(why_not([] { family_from_name("lama"); }), HasSubstr("did you mean llama?"));
  EXPECT_THAT(why_not([] { head_from_name("none"); }), HasSubstr("tied, own, mlm, pooler"));
  EXPECT_THAT(why_not([] { precision_from_name("fp4"); }), HasSubstr("bf16, f16, f32 or fp8"));
}

TEST(ModelShape, SizesThatCannotBeAreRefused) {
  ModelShape shape = find_model("gpt2-124m");
  shape.heads = 7;
  EXPECT_THAT(why_not([&] { count_parameters(shape); }), HasSubstr("768 cannot be split into 7"));
  shape.heads = 12;
  shape.kv_heads = 5;
  EXPECT_THAT(why_not([&] { count_parameters(shape); }), HasSubstr("12 heads cannot share 5"));
  shape.kv_heads = 12;
  shape.layers = 0;
  EXPECT_THAT(why_not([&] { count_parameters(shape); }), HasSubstr("number of layers"));
  shape.layers = Count{1} << 60;
  EXPECT_THAT(why_not([&] { count_parameters(shape); }), HasSubstr("more than 2^64"));
  ModelShape llama = find_model("llama-7b");
  llama.hidden = 32 * 5;
  EXPECT_THAT(why_not([&] { count_parameters(llama); }), HasSubstr("heads of width 5"));
}

TEST(Flops, OfATokenAreSixPerWeightAndTwelveLshForAttention) {
  const ModelShape& shape = find_model("gpt2-124m");
  const TokenFlops flops = count_flops(shape, 1024);
  const double weights = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
  EXPECT_EQ(flops.weights(), weights);
  EXPECT_EQ(flops.total(), 6 * weights + 12.0 * 12 * 1024 * 768);
  EXPECT_EQ(flops.forward() * 2, flops.backward());
  EXPECT_EQ(flops.forward() + flops.backward(), flops.total());
  EXPECT_EQ(count_flops(shape, 512).attention * 2, flops.attention);
}

TEST(Flops, WithoutAttentionAreCloseToSixPWhereTheHeadIsTied) {
  for (const char* model : {"gpt2-124m", "gpt2-355m", "gpt2-774m", "gpt2-1558m", "gpt3-175b"}) {
    const double rule = rule_of_thumb_flops(static_cast<double>(parameters_of(model)), 1);
    EXPECT_NEAR(6 * count_flops(find_model(model), 1).weights(), rule, 0.01 * rule) << model;
  }
}

TEST(Flops, OfGroupedHeadsLeaveOutOnlyKeysAndValues) {
  ModelShape shape = find_model("llama2-70b");
  const double grouped = count_flops(shape, 4096).total();
  shape.kv_heads = shape.heads;
  EXPECT_EQ(count_flops(shape, 4096).total() - grouped, 6.0 * 80 * 2 * 8192 * (8192 - 1024));
}

TEST(Flops, AWindowTakesThePlaceOfALongerSequence) {
  ModelShape shape = find_model("llama-7b");
  const double whole = count_flops(shape, 2048).attention;
  shape.window = 512;
  EXPECT_EQ(count_flops(shape, 2048).attention, whole / 4);
  EXPECT_EQ(count_flops(shape, 512).attention, whole / 4);
  shape.unwindowed_layers = 16;  // half of them
  EXPECT_EQ(count_flops(shape, 2048).attention, whole / 2 + whole / 8);
  EXPECT_EQ(count_flops(shape, 512).attention, whole / 4);
}

TEST(Flops, OfWindowsInEverySecondLayerAreThoseOfHalfTheLayers) {
  ModelShape shape = find_model("gemma2-2b");
  EXPECT_EQ(shape.windowed_layers(), 13u);
  EXPECT_EQ(shape.window_of(0), 4096u);
  EXPECT_EQ(shape.window_of(1), 0u);
  shape.layers = 25;
  EXPECT_EQ(shape.windowed_layers(), 13u);
  const double windowed = count_flops(shape, 8192).attention;
  shape.window = 0;
  EXPECT_EQ(windowed, count_flops(shape, 8192).attention * (12 + 13 / 2.0) / 25);
  shape.window = 4096;
  shape.unwindowed_layers = 1;
  EXPECT_EQ(why_not([&] { check(shape); }),
            "models of family gemma2 have a window in every second layer, from the first on, but "
            "the first 1 layers shall have none; leave that out");
}

TEST(ModelShape, TheScaleOfQueriesIsOfGemma2) {
  ModelShape shape = find_model("llama-7b");
  shape.query_pre_attn_scalar = 100;
  EXPECT_EQ(why_not([&] { check(shape); }),
            "models of family llama divide scores by the root of a head's width; a "
            "query_pre_attn_scalar of their own is for the families gemma2");
}

TEST(Parameters, OfT5AreCountedPartByPart) {
  const Parameters parts = count_parameters(find_model("flan-t5-small"));
  EXPECT_EQ(parts.embedding, 32128u * 512);
  EXPECT_EQ(parts.positions, 2u * 32 * 6);
  EXPECT_EQ(parts.attention, 3u * 8 * 4 * 512 * 6 * 64);
  EXPECT_EQ(parts.feed_forward, 2u * 8 * 3 * 512 * 1024);
  EXPECT_EQ(parts.norms, (5u * 8 + 2) * 512);
  EXPECT_EQ(parts.head, 32128u * 512);
}

TEST(ModelShape, OfT5HasADecoderAndBuckets) {
  ModelShape shape = find_model("t5-small");
  shape.decoder_layers = 0;
  EXPECT_EQ(
      why_not([&] { check(shape); }),
      "models of family t5 have a decoder, but the number of its layers is 0; it must be 1 or "
      "more");
  shape = find_model("t5-small");
  shape.kv_heads = 4;
  EXPECT_THAT(why_not([&] { check(shape); }), HasSubstr("as many key/value heads as heads"));
  shape = find_model("t5-small");
  shape.biases = true;
  EXPECT_EQ(why_not([&] { check(shape); }), "models of family t5 have no biases; leave them out");
  for (const auto& [buckets, distance] : {std::pair<Count, Count>{31, 128}, {2, 128}, {32, 16}}) {
    shape = find_model("t5-small");
    shape.relative_buckets = buckets;
    shape.relative_distance = distance;
    EXPECT_THAT(why_not([&] { check(shape); }), HasSubstr("take an even number of buckets"));
  }
}

TEST(ModelShape, WindowsAreOfFamiliesThatHaveThem) {
  ModelShape shape = find_model("gpt2-124m");
  shape.window = 128;
  EXPECT_EQ(why_not([&] { check(shape); }),
            "a window of attention is for the families llama, mixtral, qwen3, phi3, gemma2, but "
            "the model "
            "is of family gpt2; leave it out");
}

TEST(Flops, OfRecomputationAreTheAttentionTermOrOneMoreForward) {
  const TokenFlops flops = count_flops(find_model("gpt3-175b"), 2048);
  EXPECT_EQ(flops.recomputed(Recompute::kNone), 0);
  EXPECT_EQ(flops.recomputed(Recompute::kAttention), flops.attention);
  EXPECT_EQ(flops.recomputed(Recompute::kSelective), 0) << "no matrix product";
  EXPECT_EQ(flops.recomputed(Recompute::kFull), flops.forward() - flops.head);
  EXPECT_NEAR(flops.recomputed(Recompute::kFull) / flops.total(), 1.0 / 3, 0.01);
}

TEST(Training, OfGpt3InThirtyDaysTakesAboutEightHundredGpus) {
  const double flops = rule_of_thumb_flops(175e9, 300e9);
  EXPECT_DOUBLE_EQ(flops, 3.15e23);
  const double gpus = gpus_needed(flops, 30, 160e12);
  EXPECT_NEAR(gpus, 759.5486, 1e-4);
  EXPECT_EQ(whole_gpus(gpus), 760u);
  EXPECT_EQ(fmt::format("{:.0e}", gpus), "8e+02");
  EXPECT_NEAR(days_needed(flops, gpus, 160e12), 30, 1e-9);
  EXPECT_NEAR(days_needed(flops, 1024, 160e12), 22.2524, 1e-4);
}

TEST(Training, GpusAreWholeOnes) {
  EXPECT_EQ(whole_gpus(0.2), 1u);
  EXPECT_EQ(whole_gpus(8), 8u);
  EXPECT_EQ(whole_gpus(std::nextafter(8.0, 9.0)), 8u);
  EXPECT_EQ(whole_gpus(8.01), 9u);
  EXPECT_THAT(why_not([] { whole_gpus(1e16); }), HasSubstr("1e+16 GPUs"));
}

TEST(States, OfSevenAndAHalfBillionOnSixtyFourRanks) {
  const char* wanted[] = {"120.0", "31.4", "16.6", "1.9"};
  for (int stage = 0; stage < kZeroStages; ++stage) {
    const StateBytes states = state_bytes(7'500'000'000, Precision::kBf16, stage, 64);
    EXPECT_EQ(gigabytes(states.total()), wanted[stage]);
  }
}

TEST(States, FollowTheFormulasExactlyWhereRanksDivideP) {
  const Count p = 64 * 1000;
  for (const Count n : {1u, 2u, 8u, 64u}) {
    EXPECT_EQ(state_bytes(p, Precision::kF16, 0, n).total(), 16 * p);
    EXPECT_EQ(state_bytes(p, Precision::kF16, 1, n).total(), 4 * p + 12 * p / n);
    EXPECT_EQ(state_bytes(p, Precision::kF16, 2, n).total(), 2 * p + 14 * p / n);
    EXPECT_EQ(state_bytes(p, Precision::kF16, 3, n).total(), 16 * p / n);
    EXPECT_EQ(state_bytes(p, Precision::kF32, 1, n).total(), 8 * p + 8 * p / n);
    EXPECT_EQ(state_bytes(p, Precision::kF32, 2, n).total(), 4 * p + 12 * p / n);
  }
}

TEST(States, CountTheLargestShardWhereRanksDoNotDivideP) {
  EXPECT_EQ(state_bytes(10, Precision::kBf16, 3, 4).total(), 16u * 3);
  EXPECT_EQ(state_bytes(10, Precision::kBf16, 1, 4).total(), 4u * 10 + 12u * 3);
  EXPECT_EQ(state_bytes(3, Precision::kBf16, 3, 64).total(), 16u);
}

TEST(States, OfGpt3) {
  const StateBytes states = state_bytes(175'000'000'000, Precision::kBf16, 0, 1);
  EXPECT_EQ(gigabytes(states.parameters), "350.0");
  EXPECT_EQ(gigabytes(states.gradients), "350.0");
  EXPECT_EQ(gigabytes(states.master), "700.0");
  EXPECT_EQ(gigabytes(states.first_moment), "700.0");
  EXPECT_EQ(gigabytes(states.second_moment), "700.0");
  EXPECT_EQ(states.optimizer(), 2'100'000'000'000u);
}

TEST(States, AreSixteenBytesAParameterInEveryPrecision) {
  for (const Precision precision : kAllPrecisions) {
    EXPECT_EQ(bytes_per_parameter(precision).total(), 16u) << name(precision);
  }
  EXPECT_EQ(bytes_per_parameter(Precision::kF32).master, 0u);
  EXPECT_EQ(bytes_per_parameter(Precision::kF32).parameters, 4u);
}

TEST(States, FormulasSayWhatIsCounted) {
  EXPECT_EQ(state_formula(Precision::kBf16, 0), "16P");
  EXPECT_EQ(state_formula(Precision::kBf16, 1), "4P + 12P/N");
  EXPECT_EQ(state_formula(Precision::kBf16, 2), "2P + 14P/N");
  EXPECT_EQ(state_formula(Precision::kBf16, 3), "16P/N");
  EXPECT_EQ(state_formula(Precision::kF32, 1), "8P + 8P/N");
  EXPECT_THAT(why_not([] { state_formula(Precision::kBf16, 4); }), HasSubstr("ZeRO stage 4"));
  EXPECT_THAT(why_not([] { state_bytes(1, Precision::kBf16, -1, 1); }), HasSubstr("stage -1"));
  EXPECT_THAT(why_not([] { state_bytes(1, Precision::kBf16, 0, 0); }),
              HasSubstr("number of ranks is 0"));
}

TEST(States, FewestRanksIsTheFirstNumberThatFits) {
  for (const Count parameters : {1u, 7u, 100u, 257u}) {
    for (Count budget = 0; budget < 18 * parameters; budget += 5) {
      for (int stage = 0; stage < kZeroStages; ++stage) {
        std::optional<Count> first;
        for (Count ranks = 1; ranks <= parameters && !first; ++ranks) {
          const Count bytes = state_bytes(parameters, Precision::kBf16, stage, ranks).total();
          if (bytes <= budget) first = ranks;
        }
        ASSERT_EQ(fewest_ranks(parameters, Precision::kBf16, stage, budget), first)
            << parameters << " parameters, " << budget << " bytes, stage " << stage;
      }
    }
  }
}

TEST(Traffic, IsTwoTwoTwoAndThreeTimesTheShardsOfOthers) {
  const Count wanted[] = {2, 2, 2, 3};
  for (int stage = 0; stage < kZeroStages; ++stage) {
    EXPECT_EQ(traffic_multiple(stage), wanted[stage]);
    EXPECT_EQ(traffic_bytes(6400, Precision::kBf16, stage, 64), wanted[stage] * 2 * 6300);
    EXPECT_EQ(traffic_bytes(6400, Precision::kF32, stage, 64), wanted[stage] * 4 * 6300);
    EXPECT_EQ(traffic_bytes(6400, Precision::kBf16, stage, 1), 0u);
  }
}

TEST(Activations, OfALayerFollowTheFormula) {
  const ModelShape& shape = find_model("gpt3-175b");
  const double s = 2048, b = 3, h = 12288, a = 96;
  const auto bytes = [&](Precision precision, Recompute mode) {
    return static_cast<double>(activation_bytes(shape, 2048, 3, precision, mode));
  };
  EXPECT_EQ(bytes(Precision::kBf16, Recompute::kNone), s * b * h * (34 + 5 * a * s / h));
  EXPECT_EQ(bytes(Precision::kF16, Recompute::kAttention), 34 * s * b * h);
  EXPECT_THROW(bytes(Precision::kF16, Recompute::kSelective), Error) << "what a run recomputes";
  EXPECT_EQ(bytes(Precision::kBf16, Recompute::kFull), 2 * s * b * h);
  EXPECT_EQ(bytes(Precision::kF32, Recompute::kNone), s * b * h * (66 + 9 * a * s / h));
  EXPECT_TRUE(activation_formula_is_exact(shape));
  EXPECT_FALSE(activation_formula_is_exact(find_model("llama2-70b")));
}

TEST(Numbers, AreReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_count("--parameters", "7.5e9"), 7'500'000'000u);
  EXPECT_EQ(parse_count("--parameters", "7.3B"), 7'300'000'000u);
  EXPECT_EQ(parse_count("--seq", "2K"), 2000u);
  EXPECT_DOUBLE_EQ(parse_number("--gpu-flops", "160T"), 160e12);
  EXPECT_DOUBLE_EQ(parse_number("--days", "0.5"), 0.5);
  for (const char* bad : {"", "x", "-1", "0", "1.5", "12 ", "1x", "nan", "inf", "1e400", "1e16"}) {
    EXPECT_THAT(why_not([&] { parse_count("--layers", bad); }), HasSubstr("--layers")) << bad;
  }
}

TEST(Numbers, AreWrittenAsPeopleReadThem) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(124'439'808), "124,439,808");
  EXPECT_EQ(format_si(31.40625e9, "B"), "31.4 GB");
  EXPECT_EQ(format_si(120e9, "B"), "120 GB");
  EXPECT_EQ(format_si(999.6e9, "B"), "1.0 TB");
  EXPECT_EQ(format_si(3.15e23, "FLOP"), "315 ZFLOP");
  EXPECT_EQ(format_words(124.4e6), "124 million");
  EXPECT_EQ(format_words(7.5e9), "7.5 billion");
  EXPECT_EQ(format_words(12), "12");
}

}  // namespace
}  // namespace lockstep::plan
