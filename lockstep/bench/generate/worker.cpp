#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/base/system/resident.h"
#include "lockstep/bench/generate/bench_generate.h"
#include "lockstep/bench/train/helper.h"
#include "lockstep/nn/generate/decoder.h"
#include "lockstep/nn/generate/sampling.h"
#include "lockstep/nn/parameters/weights.h"
#include "lockstep/tensor/host_view.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;

double seconds_between(SteadyClock::time_point begin, SteadyClock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

void serve_generation(const train::TrainOptions& options, std::int64_t prompt,
                      std::int64_t tokens) {
  const int threads = train::threads_of(options);
  const auto ops = train::make_ops(options);
  const nn::Model model = train::model_of(options);
  nn::Weights weights(model, train::dtype_of(options.precision), *ops);
  weights.initialise(1, threads);
  nn::Decoder decoder(model, weights.flat(), weights.buffer(), {.positions = prompt + tokens},
                      *ops);
  nn::Sampler sampler({.temperature = 0});
  std::vector<std::int32_t> text;
  for (std::int64_t i = 0; i < prompt; ++i) {
    const std::uint32_t word = random_word(1, 0, static_cast<std::uint64_t>(i));
    text.push_back(static_cast<std::int32_t>(word % static_cast<std::uint32_t>(decoder.classes())));
  }

  // As peers count: the first new token comes with the prompt, and the last is not read any more.
  const auto generate = [&] {
    const auto begin = SteadyClock::now();
    decoder.rewind(0);
    Tensor logits = decoder.prefill(text);
    std::int32_t token = sampler.sample(HostView(logits).as<float>(), 0);
    const auto prompt_end = SteadyClock::now();
    for (std::int64_t i = 1; i < tokens; ++i) {
      logits = decoder.step(token);
      token = sampler.sample(HostView(logits).as<float>(), static_cast<std::uint64_t>(i));
    }
    const auto end = SteadyClock::now();
    return Json{{"prompt_seconds", seconds_between(begin, prompt_end)},
                {"seconds", seconds_between(prompt_end, end)},
                {"last_token", token}};
  };
  const auto answer = [&](std::string_view request) -> std::string {
    if (request == "generate") return generate().dump();
    if (request == "reset") {
      reset_peak_resident();
      return "{}";
    }
    if (request == "usage") {
      return Json{{"peak_bytes", peak_resident_bytes()},
                  {"planned_bytes", weights.bytes() + decoder.plan().bytes()}}
          .dump();
    }
    fail(ErrorCode::kInvalidArgument, "there is no request '{}'", request);
  };
  serve_helper(Json{{"version", ops->name()}}.dump(), answer);
}

}  // namespace lockstep::bench
