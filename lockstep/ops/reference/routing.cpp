#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lockstep/ops/check.h"
#include "lockstep/ops/reference/elements.h"
#include "lockstep/ops/reference/reference.h"

namespace lockstep::ops::reference {
namespace {

std::vector<double> softmax(const std::vector<double>& x) {
  const double most = *std::max_element(x.begin(), x.end());
  std::vector<double> y;
  for (const double one : x) y.push_back(std::exp(one - most));
  const double sum = std::accumulate(y.begin(), y.end(), 0.0);
  for (double& one : y) one /= sum;
  return y;
}

// All experts, the one with the largest logit first.
std::vector<std::int64_t> by_logit(const std::vector<double>& logits) {
  std::vector<std::int64_t> experts(logits.size());
  std::iota(experts.begin(), experts.end(), 0);
  std::stable_sort(experts.begin(), experts.end(), [&](std::int64_t a, std::int64_t b) {
    const double left = logits[static_cast<std::size_t>(a)];
    const double right = logits[static_cast<std::size_t>(b)];
    return std::isnan(right) ? !std::isnan(left) : left > right;
  });
  return experts;
}

template <class T>
std::vector<double> row_of(const Elements<T>& matrix, std::int64_t row, std::int64_t columns) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < columns; ++i) values.push_back(matrix(row, i));
  return values;
}

// Statistics are f64 where the compute type is.
template <class T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace

void run(const Route& op) {
  const std::int64_t tokens = op.logits.shape()[0];
  const std::int64_t experts = op.logits.shape()[1];
  const std::int64_t chosen = op.experts.shape()[1];
  std::int32_t* const choice = op.experts.as<std::int32_t>().data();
  std::int32_t* const rows = op.rows.as<std::int32_t>().data();
  std::int32_t* const pairs = op.pairs.as<std::int32_t>().data();
  std::int32_t* const counts = op.counts.as<std::int32_t>().data();
  with_float_type(op.logits.dtype(), [&]<class T>(T) {
    const Elements<T> logits(op.logits);
    const Elements<Statistic<T>> weights(op.weights);
    std::vector<double> by_pair;
    for (std::int64_t token = 0; token < tokens; ++token) {
      const std::vector<double> row = row_of(logits, token, experts);
      const std::vector<std::int64_t> order = by_logit(row);
      std::vector<double> largest;
      for (std::int64_t j = 0; j < chosen; ++j) {
        const std::int64_t expert = order[static_cast<std::size_t>(j)];
        choice[token * chosen + j] = static_cast<std::int32_t>(expert);
        largest.push_back(row[static_cast<std::size_t>(expert)]);
      }
      const std::vector<double> shares = softmax(largest);
      by_pair.insert(by_pair.end(), shares.begin(), shares.end());
    }
    std::int32_t row = 0;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      const std::int32_t first = row;
      for (std::int64_t pair = 0; pair < tokens * chosen; ++pair) {
        if (choice[pair] != expert) continue;
        rows[pair] = row;
        pairs[row] = static_cast<std::int32_t>(pair);
        weights.set(row, by_pair[static_cast<std::size_t>(pair)]);
        ++row;
      }
      counts[expert] = row - first;
    }
  });
}

void run(const RouteBackward& op) {
  const std::int64_t tokens = op.logits.shape()[0];
  const std::int64_t experts = op.logits.shape()[1];
  const std::int64_t chosen = op.experts.shape()[1];
  check_indices(op.experts, experts, "route_backward: experts");
  check_indices(op.rows, tokens * chosen, "route_backward: rows");
  const std::int32_t* const choice = op.experts.as<const std::int32_t>().data();
  const std::int32_t* const rows = op.rows.as<const std::int32_t>().data();
  with_float_type(op.logits.dtype(), [&]<class T>(T) {
    const Elements<T> logits(op.logits), dlogits(op.dlogits);
    const Elements<Statistic<T>> weights(op.weights), dweights(op.dweights), balance(op.balance);
    for (std::int64_t token = 0; token < tokens; ++token) {
      std::vector<double> sums(static_cast<std::size_t>(experts));
      double mean = 0;
      for (std::int64_t pair = token * chosen; pair < (token + 1) * chosen; ++pair) {
        mean += weights[rows[pair]] * dweights[rows[pair]];
      }
      for (std::int64_t pair = token * chosen; pair < (token + 1) * chosen; ++pair) {
        sums[static_cast<std::size_t>(choice[pair])] +=
            weights[rows[pair]] * (dweights[rows[pair]] - mean);
      }
      if (balance.given()) {
        const std::vector<double> shares = softmax(row_of(logits, token, experts));
        double balanced = 0;
        for (std::int64_t e = 0; e < experts; ++e) {
          balanced += shares[static_cast<std::size_t>(e)] * balance[e];
        }
        for (std::int64_t e = 0; e < experts; ++e) {
          sums[static_cast<std::size_t>(e)] +=
              shares[static_cast<std::size_t>(e)] * (balance[e] - balanced);
        }
      }
      for (std::int64_t e = 0; e < experts; ++e) {
        dlogits.set(token, e, sums[static_cast<std::size_t>(e)]);
      }
    }
  });
}

void run(const GatherTokens& op) {
  check_indices(op.pairs, op.x.shape()[0] * op.experts_per_token, "gather_tokens: pairs");
  const auto pairs = op.pairs.as<const std::int32_t>();
  with_float_type(op.x.dtype(), [&]<class T>(T) {
    const Elements<T> x(op.x), y(op.y);
    for (std::int64_t row = 0; row < op.y.shape()[0]; ++row) {
      const std::int64_t token = pairs[static_cast<std::size_t>(row)] / op.experts_per_token;
      for (std::int64_t i = 0; i < op.y.shape()[1]; ++i) y.set(row, i, x(token, i));
    }
  });
}

void run(const CombineTokens& op) {
  check_indices(op.rows, op.routed.shape()[0], "combine_tokens: rows");
  const std::int32_t* const rows = op.rows.as<const std::int32_t>().data();
  const std::int64_t chosen = op.rows.shape()[1];
  with_float_type(op.y.dtype(), [&]<class T>(T) {
    const Elements<T> routed(op.routed), residual(op.residual), y(op.y);
    const Elements<Statistic<T>> weights(op.weights);
    for (std::int64_t token = 0; token < op.y.shape()[0]; ++token) {
      for (std::int64_t i = 0; i < op.y.shape()[1]; ++i) {
        double sum = residual.given() ? residual(token, i) : 0;
        for (std::int64_t j = 0; j < chosen; ++j) {
          const std::int64_t row = rows[token * chosen + j];
          sum += (weights.given() ? weights[row] : 1) * routed(row, i);
        }
        y.set(token, i, sum);
      }
    }
  });
}

void run(const WeightRows& op) {
  with_float_type(op.x.dtype(), [&]<class T>(T) {
    const Elements<T> x(op.x), dx(op.dx);
    const Elements<Statistic<T>> weights(op.weights), dweights(op.dweights);
    for (std::int64_t row = 0; row < op.x.shape()[0]; ++row) {
      double sum = 0;
      for (std::int64_t i = 0; i < op.x.shape()[1]; ++i) {
        sum += x(row, i) * dx(row, i);
        x.set(row, i, weights[row] * x(row, i));
        dx.set(row, i, weights[row] * dx(row, i));
      }
      dweights.set(row, sum);
    }
  });
}

}  // namespace lockstep::ops::reference
