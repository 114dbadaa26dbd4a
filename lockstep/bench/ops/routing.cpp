// The routing of tokens to experts (ops/routing.h).
#include <fmt/format.h>

#include <numeric>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"
#include "lockstep/ops/element.h"
#include "lockstep/ops/routing.h"

namespace lockstep::bench {
namespace {

struct Routing {
  std::int64_t tokens, experts, chosen;
  std::int64_t width = 0;

  std::int64_t pairs() const { return tokens * chosen; }
  std::string text() const {
    return fmt::format("{} tokens, {} of {} experts{}", tokens, chosen, experts,
                       width == 0 ? "" : fmt::format(", {} wide", width));
  }
};

constexpr DType kIndex = DType::kI32;
constexpr Tolerance kExact{.relative = 0};

// Many small experts, on the tokens that the other operations are timed with.
constexpr Routing kTypicalRouting{Typical::kRows, 64, 8, Typical::kWidth};

// Few tokens leave experts without any.
constexpr Routing kOddRoutings[] = {{1, 1, 1, 1},  {3, 7, 2, 5},    {17, 5, 3, 131},
                                    {0, 3, 2, 4},  {9, 64, 6, 3},   {67, 8, 2, 257},
                                    {5, 2, 2, 64}, {33, 3, 1, 1031}};

std::vector<OpCase> cases_of(OpCase (*one)(DType, const Routing&), DType dtype) {
  std::vector<OpCase> cases;
  for (const Routing& routing : kOddRoutings) cases.push_back(one(dtype, routing));
  return cases;
}

// Pairs in an order that is neither that of the tokens nor its reverse.
void fill_rows(const Tensors& t, std::int64_t pairs) {
  const Tensor rows = t["rows"], of_rows = t["pairs"];
  std::int64_t step = pairs / 2 + 1;
  while (std::gcd(step, pairs) != 1) ++step;
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    const std::int64_t row = (pair * step + 1) % pairs;
    if (ops::is_given(rows)) {
      rows.as<std::int32_t>()[static_cast<std::size_t>(pair)] = static_cast<std::int32_t>(row);
    }
    if (ops::is_given(of_rows)) {
      of_rows.as<std::int32_t>()[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(pair);
    }
  }
}

OpCase route_case(DType dtype, const Routing& routing) {
  OpCase one;
  one.name = routing.text();
  const DType statistics = statistic(dtype);
  const Shape chosen{routing.tokens, routing.chosen};
  one.fields = {input("logits", dtype, {routing.tokens, routing.experts}, normal()),
                output("experts", kIndex, chosen, kExact),
                output("rows", kIndex, chosen, kExact),
                output("pairs", kIndex, {routing.pairs()}, kExact),
                output("counts", kIndex, {routing.experts}, kExact),
                output("weights", statistics, {routing.pairs()}, {.noise = 4})};
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::Route{.logits = t["logits"],
                       .experts = t["experts"],
                       .rows = t["rows"],
                       .pairs = t["pairs"],
                       .counts = t["counts"],
                       .weights = t["weights"]});
  };
  one.gradient = Gradient{
      .inputs = {"logits"}, .outputs = {"weights"}, .backward = [](Ops& ops, const Tensors& t) {
        ops.run(ops::RouteBackward{.logits = t["logits"],
                                   .experts = t["experts"],
                                   .rows = t["rows"],
                                   .weights = t["weights"],
                                   .dweights = t["dweights"],
                                   .balance = {},
                                   .dlogits = t["dlogits"]});
      }};
  return one;
}

// Logits of few values, so that many are equal, or the largest always of one expert.
enum class Logits { kEqual, kOfOne };

OpCase route_case(DType dtype, const Routing& routing, Logits logits) {
  OpCase one = route_case(dtype, routing);
  one.name += logits == Logits::kEqual ? ", equal logits" : ", all to one";
  one.gradient.reset();
  one.prepare = [routing, logits](Ops&, const Tensors& t) {
    ops::with_float_type(t["logits"].dtype(), [&]<class T>(T) {
      const auto all = t["logits"].as<T>();
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto expert = i % static_cast<std::size_t>(routing.experts);
        if (logits == Logits::kEqual) {
          all[i] = ops::rounded<T>(static_cast<double>(i * 7 % 11 % 3));
        } else if (expert + 1 == static_cast<std::size_t>(routing.experts)) {
          all[i] = ops::rounded<T>(9);
        }
      }
    });
  };
  return one;
}

std::vector<OpCase> route_cases(DType dtype) {
  std::vector<OpCase> cases = cases_of(route_case, dtype);
  cases.push_back(route_case(dtype, {3001, 5, 3}));  // more pairs than a part of a GPU takes
  cases.push_back(route_case(dtype, {131, 40, 33}));
  for (const Logits logits : {Logits::kEqual, Logits::kOfOne}) {
    cases.push_back(route_case(dtype, {67, 8, 2}, logits));
    cases.push_back(route_case(dtype, {17, 5, 1}, logits));
  }
  return cases;
}

// The first `chosen` experts of every token, one further for the next.
void fill_experts(const Tensors& t, const Routing& routing) {
  const auto experts = t["experts"].as<std::int32_t>();
  for (std::int64_t pair = 0; pair < routing.pairs(); ++pair) {
    const std::int64_t expert = pair / routing.chosen + pair % routing.chosen;
    experts[static_cast<std::size_t>(pair)] = static_cast<std::int32_t>(expert % routing.experts);
  }
}

OpCase route_backward(DType dtype, const Routing& routing, bool balanced, bool in_place) {
  OpCase one;
  one.name = fmt::format("{}{}{}", routing.text(), balanced ? ", balanced" : "",
                         in_place ? ", in place" : "");
  const DType statistics = statistic(dtype);
  const Shape all{routing.tokens, routing.experts};
  const Shape chosen{routing.tokens, routing.chosen};
  const Tolerance tolerance{.noise = 16};
  if (in_place) {
    // Without balance nothing else says how many experts there are.
    one.fields = {updated("logits", dtype, all, normal(), tolerance,
                          balanced ? Freedom::kNone : Freedom::kLast)};
  } else {
    one.fields = {input("logits", dtype, all, normal()), output("dlogits", dtype, all, tolerance)};
  }
  for (const char* name : {"experts", "rows"}) {
    one.fields.push_back(input(name, kIndex, chosen, indices(1)));
  }
  one.fields.push_back(input("weights", statistics, {routing.pairs()}, uniform(0, 1)));
  one.fields.push_back(input("dweights", statistics, {routing.pairs()}, normal()));
  if (balanced) one.fields.push_back(input("balance", statistics, {routing.experts}, normal()));
  one.prepare = [routing](Ops&, const Tensors& t) {
    fill_experts(t, routing);
    fill_rows(t, routing.pairs());
  };
  one.run = [in_place](Ops& ops, const Tensors& t) {
    ops.run(ops::RouteBackward{.logits = t["logits"],
                               .experts = t["experts"],
                               .rows = t["rows"],
                               .weights = t["weights"],
                               .dweights = t["dweights"],
                               .balance = t["balance"],
                               .dlogits = in_place ? t["logits"] : t["dlogits"]});
  };
  return one;
}

std::vector<OpCase> route_backward_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Routing& routing : kOddRoutings) {
    for (const bool balanced : {false, true}) {
      for (const bool in_place : {false, true}) {
        cases.push_back(route_backward(dtype, routing, balanced, in_place));
      }
    }
  }
  return cases;
}

OpCase gather_case(DType dtype, const Routing& routing) {
  OpCase one;
  one.name = routing.text();
  one.fields = {input("pairs", kIndex, {routing.pairs()}, indices(1)),
                input("x", dtype, {routing.tokens, routing.width}, normal(), Freedom::kFirst),
                output("y", dtype, {routing.pairs(), routing.width}, {})};
  one.prepare = [routing](Ops&, const Tensors& t) { fill_rows(t, routing.pairs()); };
  one.run = [routing](Ops& ops, const Tensors& t) {
    ops.run(ops::GatherTokens{
        .pairs = t["pairs"], .experts_per_token = routing.chosen, .x = t["x"], .y = t["y"]});
  };
  return one;
}

// With its gradients, which are those of GatherTokens and WeightRows.
OpCase combine(DType dtype, const Routing& routing, bool weighted, bool adds) {
  OpCase one;
  one.name =
      fmt::format("{}{}{}", routing.text(), weighted ? ", weighted" : "", adds ? ", added" : "");
  const Shape routed{routing.pairs(), routing.width};
  const Shape tokens{routing.tokens, routing.width};
  const DType statistics = statistic(dtype);
  // Without weights any number of rows may be there.
  one.fields = {
      input("rows", kIndex, {routing.tokens, routing.chosen}, indices(1), Freedom::kLast),
      input("routed", dtype, routed, normal(), weighted ? Freedom::kNone : Freedom::kFirst),
      output("y", dtype, tokens, {.noise = 4 * static_cast<double>(routing.chosen)})};
  if (weighted) {
    one.fields.push_back(input("weights", statistics, {routing.pairs()}, uniform(0, 1)));
  }
  if (adds) one.fields.push_back(input("residual", dtype, tokens, normal()));
  one.prepare = [routing](Ops&, const Tensors& t) { fill_rows(t, routing.pairs()); };
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::CombineTokens{.rows = t["rows"],
                               .weights = t["weights"],
                               .routed = t["routed"],
                               .residual = t["residual"],
                               .y = t["y"]});
  };
  return one;
}

std::vector<OpCase> combine_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const Routing& routing : kOddRoutings) {
    for (const bool weighted : {false, true}) {
      for (const bool adds : {false, true}) {
        cases.push_back(combine(dtype, routing, weighted, adds));
      }
    }
  }
  return cases;
}

OpCase weight_rows_case(DType dtype, const Routing& routing) {
  OpCase one;
  one.name = fmt::format("{} x {}", routing.tokens, routing.width);
  const Shape rows{routing.tokens, routing.width};
  const DType statistics = statistic(dtype);
  one.fields = {
      input("weights", statistics, {routing.tokens}, uniform(0, 1)),
      updated("x", dtype, rows, normal(), {}), updated("dx", dtype, rows, normal(), {}),
      output("dweights", statistics, {routing.tokens}, {.noise = noise_of_sum(routing.width)})};
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::WeightRows{
        .weights = t["weights"], .x = t["x"], .dx = t["dx"], .dweights = t["dweights"]});
  };
  return one;
}

// ---- numbers for the balance

OpCase add_counts_case(DType, std::int64_t count) {
  OpCase one;
  one.name = fmt::format("{}", count);
  one.fields = {input("counts", kIndex, {count}, indices(1000)),
                updated("sums", kIndex, {count}, indices(1000), kExact)};
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::AddCounts{.counts = t["counts"], .sums = t["sums"]});
  };
  return one;
}

OpCase count_targets_case(DType, std::int64_t count) {
  OpCase one;
  one.name = fmt::format("{}", count);
  one.fields = {input("targets", kIndex, {count}, targets(7), Freedom::kFirst),
                output("count", kIndex, {1}, kExact)};
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::CountTargets{.targets = t["targets"], .count = t["count"]});
  };
  return one;
}

OpCase balance_case(DType, std::int64_t experts) {
  OpCase one;
  one.name = fmt::format("{} experts", experts);
  one.fields = {input("counts", kIndex, {experts + 1}, indices(1000)),
                output("balance", DType::kF32, {experts}, {})};
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::BalanceExperts{.counts = t["counts"],
                                .experts_per_token = 2,
                                .coefficient = 0.02,
                                .factor = 0.125,
                                .balance = t["balance"]});
  };
  return one;
}

std::vector<OpCase> of_counts(OpCase (*one)(DType, std::int64_t), DType dtype) {
  std::vector<OpCase> cases;
  for (const std::int64_t count : {1, 7, 64, 1031}) cases.push_back(one(dtype, count));
  return cases;
}

// A Mixtral of eight experts on the tokens of a Llama.
constexpr Routing kLargeRouting{Large::kLlamaRows, 8, 2, 4096};

}  // namespace

std::vector<OpDescription> describe_routing() {
  const auto description = [](const char* name, std::vector<OpCase> (*cases)(DType),
                              OpCase (*typical)(DType), std::vector<OpCase> (*large)(DType)) {
    return OpDescription{.name = name, .cases = cases, .typical = typical, .large = {large}};
  };
  constexpr std::int64_t kManyExperts = 256;
  return {
      description(
          "route", route_cases, [](DType dtype) { return route_case(dtype, kTypicalRouting); },
          [](DType dtype) {
            return std::vector{
                route_case(dtype, {Large::kRows, kTypicalRouting.experts, kTypicalRouting.chosen})};
          }),
      description(
          "route_backward", route_backward_cases,
          [](DType dtype) { return route_backward(dtype, kTypicalRouting, true, false); },
          [](DType dtype) {
            return std::vector{route_backward(
                dtype, {Large::kRows, kTypicalRouting.experts, kTypicalRouting.chosen}, true,
                false)};
          }),
      description(
          "gather_tokens", [](DType dtype) { return cases_of(gather_case, dtype); },
          [](DType dtype) { return gather_case(dtype, kTypicalRouting); },
          [](DType dtype) { return std::vector{gather_case(dtype, kLargeRouting)}; }),
      description(
          "combine_tokens", combine_cases,
          [](DType dtype) { return combine(dtype, kTypicalRouting, true, true); },
          [](DType dtype) { return std::vector{combine(dtype, kLargeRouting, true, true)}; }),
      description(
          "weight_rows", [](DType dtype) { return cases_of(weight_rows_case, dtype); },
          [](DType dtype) { return weight_rows_case(dtype, kTypicalRouting); },
          [](DType dtype) {
            return std::vector{weight_rows_case(dtype, {2 * Large::kLlamaRows, 8, 2, 14336})};
          }),
      description(
          "add_counts", [](DType dtype) { return of_counts(add_counts_case, dtype); },
          [](DType dtype) { return add_counts_case(dtype, kManyExperts); },
          [](DType dtype) { return std::vector{add_counts_case(dtype, kManyExperts)}; }),
      description(
          "count_targets", [](DType dtype) { return of_counts(count_targets_case, dtype); },
          [](DType dtype) { return count_targets_case(dtype, Typical::kRows); },
          [](DType dtype) { return std::vector{count_targets_case(dtype, Large::kLlamaRows)}; }),
      description(
          "balance_experts", [](DType dtype) { return of_counts(balance_case, dtype); },
          [](DType dtype) { return balance_case(dtype, kManyExperts); },
          [](DType dtype) { return std::vector{balance_case(dtype, kManyExperts)}; })};
}

}  // namespace lockstep::bench
