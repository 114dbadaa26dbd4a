#include <fmt/format.h>

#include "lockstep/bench/data_parallel/cases.h"
#include "lockstep/parallel/compression/options.h"

namespace lockstep::bench::data_parallel {
namespace {

using parallel::Compression;

constexpr int kStepsToCount = 10;  // where no loss is asked for

struct Codec {
  Compression compression;
  double most_bytes;  // of f32's; 0: no bar
};
// Those with bars; the others with --all.
constexpr Codec kCodecs[] = {{Compression::kNone, 0},    {Compression::kTopk, 0.03},
                             {Compression::kInt8, 0.27}, {Compression::kBf16, 0},
                             {Compression::kF16, 0},     {Compression::kInt4, 0},
                             {Compression::kOnebit, 0},  {Compression::kRandomk, 0}};

std::string codec_setting(Compression compression) {
  const bool sparse = compression == Compression::kTopk || compression == Compression::kRandomk;
  return std::string(parallel::name(compression)) + (sparse ? " 1 %" : "");
}

Row codec_row(Session& session, Compression compression) {
  Row row;
  row.setting = codec_setting(compression);
  const int steps = session.recipe_steps(kStepsToCount);
  const Trained trained = session.run(
      "compression", row.setting,
      {Session::with(session.recipe(steps),
                     {fmt::format("parallel.compression={}", parallel::name(compression)),
                      "parallel.compression_ratio=0.01"}),
       2});
  row.problem = trained.problem;
  if (!row.problem.empty()) return row;
  double bytes = 0;
  for (const TrainedStep& step : trained.steps) {
    if (step.ranks)
      bytes +=
          static_cast<double>(step.ranks->bytes_sent) / static_cast<double>(trained.steps.size());
  }
  if (bytes > 0) {
    row.numbers.emplace_back("bytes_sent", bytes);
  } else {
    row.problem = "the metrics of the run have no bytes_sent";
  }
  if (const auto loss = trained.validation_loss()) row.numbers.emplace_back("val_loss", *loss);
  return row;
}

}  // namespace

CaseReport run_compression(Session& session) {
  CaseReport report{.name = "compression",
                    .what = "2 ranks, gradients in f32, on the recipe",
                    .columns = {{"bytes_sent", "sent in a step", Unit::kBytes},
                                {"bytes_ratio", "of f32's", Unit::kRatio},
                                {"val_loss", "validation loss", Unit::kLoss}}};
  const std::string none = codec_setting(Compression::kNone);
  for (const Codec& codec : kCodecs) {
    const bool has_bars = codec.most_bytes > 0;
    if (!has_bars && codec.compression != Compression::kNone && !session.bench().all) continue;
    report.rows.push_back(codec_row(session, codec.compression));
    const std::string setting = report.rows.back().setting;
    const auto ratio = report.ratio(setting, none, "bytes_sent");
    if (ratio) report.rows.back().numbers.emplace_back("bytes_ratio", *ratio);
    if (!has_bars) continue;
    report.bars.push_back({.claim = fmt::format("bytes of {} / f32's", setting),
                           .side = Bar::Side::kAtMost,
                           .bound = codec.most_bytes,
                           .value = ratio,
                           .why_not = "a run failed"});
    report.bars.push_back({.claim = fmt::format("validation loss of {} / {}", setting, none),
                           .side = Bar::Side::kAtMost,
                           .bound = 1.02,
                           .value = report.ratio(setting, none, "val_loss"),
                           .why_not = session.has_text() ? "a run failed" : "needs --text FILE"});
  }
  return report;
}

}  // namespace lockstep::bench::data_parallel
