#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/base/system/resident.h"
#include "lockstep/bench/generate/bench_generate.h"
#include "lockstep/bench/train/helper.h"
#include "lockstep/nn/generate/continuation.h"
#include "lockstep/nn/generate/decoder.h"
#include "lockstep/nn/parameters/weights.h"
#include "lockstep/tensor/device_memory.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;

double seconds_between(SteadyClock::time_point begin, SteadyClock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

void serve_generation(const train::TrainOptions& options, std::int64_t batch, std::int64_t prompt,
                      std::int64_t tokens) {
  const int threads = train::threads_of(options);
  const auto ops = train::make_ops(options);
  const nn::Model model = train::model_of(options);
  nn::Weights weights(model, train::dtype_of(options.precision), *ops);
  weights.initialise(1, threads);
  nn::Decoder decoder(model, weights.flat(), weights.buffer(),
                      {.positions = prompt + tokens, .batch = batch}, *ops);
  nn::Continuation continuation(decoder,
                                {.options = {.temperature = 0}, .choices = decoder.classes()});
  const std::vector<bool> wanted(static_cast<std::size_t>(batch), true);
  std::vector<std::int32_t> text;
  for (std::int64_t i = 0; i < prompt; ++i) {
    const std::uint32_t word = random_word(1, 0, static_cast<std::uint64_t>(i));
    text.push_back(static_cast<std::int32_t>(word % static_cast<std::uint32_t>(decoder.classes())));
  }

  // As peers count: the first new token comes with the prompt, and the last is not read any more.
  const auto generate = [&] {
    const auto begin = SteadyClock::now();
    for (std::int64_t i = 0; i < batch; ++i) {
      decoder.rewind(0, i);
      decoder.prefill(text, i);
      continuation.begin(i, 1, prompt);
    }
    continuation.queue_round();
    std::int32_t token = continuation.take(wanted)[0];
    const auto prompt_end = SteadyClock::now();
    std::int64_t queued = 1;
    for (std::int64_t i = 1; i < tokens; ++i) {
      for (; queued < tokens && continuation.queued() < continuation.ahead(); ++queued) {
        continuation.queue_step();
      }
      token = continuation.take(wanted)[0];
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
      reset_peak_memory(ops->device());
      return "{}";
    }
    if (request == "usage") {
      const bool on_cpu = ops->device() == Device{};
      const std::size_t peak = on_cpu ? peak_resident_bytes() : peak_memory(ops->device());
      return Json{{"peak_bytes", peak}, {"planned_bytes", weights.bytes() + decoder.plan().bytes()}}
          .dump();
    }
    fail(ErrorCode::kInvalidArgument, "unknown request '{}'", request);
  };
  serve_helper(Json{{"version", ops->name()}}.dump(), answer);
}

}  // namespace lockstep::bench
