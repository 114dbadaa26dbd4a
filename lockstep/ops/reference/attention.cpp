#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/ops/reference/dropout.h"
#include "lockstep/ops/reference/elements.h"
#include "lockstep/ops/reference/reference.h"

namespace lockstep::ops::reference {
namespace {

// One head of queries, keys or values: its element i at a place of a sequence.
template <class T>
class Head {
 public:
  Head(const Heads& heads, std::int64_t sequence, std::int64_t length, std::int64_t head,
       std::int64_t head_size)
      : elements_(heads.rows),
        first_row_(sequence * length),
        first_(heads.first + head * head_size) {}

  double operator()(std::int64_t place, std::int64_t i) const {
    return elements_(first_row_ + place, first_ + i);
  }
  void set(std::int64_t place, std::int64_t i, double value) const {
    elements_.set(first_row_ + place, first_ + i, value);
  }

 private:
  Elements<T> elements_;
  std::int64_t first_row_;
  std::int64_t first_;
};

// One query head of one sequence, and the keys and values it looks at.
template <class Op, class T, class S>
struct Looks {
  Looks(const Op& op_, std::int64_t sequence_, std::int64_t head_)
      : op(op_),
        sequence(sequence_),
        head(head_),
        kv_head(head_ / (op_.shape.heads / op_.shape.kv_heads)),
        q(op_.q, sequence_, op_.shape.queries, head_, op_.shape.head_size),
        k(op_.k, sequence_, op_.shape.keys, kv_head, op_.shape.head_size),
        v(op_.v, sequence_, op_.shape.keys, kv_head, op_.shape.head_size),
        biases(op_.bias) {}

  bool sees(std::int64_t query, std::int64_t key) const {
    const AttentionShape& shape = op.shape;
    const std::int64_t last = query + shape.keys - shape.queries;
    if (shape.causal && key > last) return false;
    if (shape.window > 0 && key <= last - shape.window) return false;
    if (!is_given(op.key_mask)) return true;
    const auto place = static_cast<std::size_t>(sequence * shape.keys + key);
    return op.key_mask.template as<const std::uint8_t>()[place] != 0;
  }

  // The place of a distance in the head's bias, and the bias there.
  std::int64_t bias_place(std::int64_t query, std::int64_t key) const {
    const std::int64_t farthest = op.shape.distances / 2;
    const std::int64_t distance = key - (query + op.shape.keys - op.shape.queries);
    return farthest + std::clamp(distance, -farthest, farthest);
  }
  double bias(std::int64_t query, std::int64_t key) const {
    return biases.given() ? biases(head, bias_place(query, key)) : 0;
  }
  double score(std::int64_t query, std::int64_t key) const {
    if (!sees(query, key)) return -std::numeric_limits<double>::infinity();
    double sum = 0;
    for (std::int64_t i = 0; i < op.shape.head_size; ++i) sum += q(query, i) * k(key, i);
    const double scaled = sum * static_cast<double>(op.scale) + bias(query, key);
    const auto cap = static_cast<double>(op.softcap);
    return cap > 0 ? cap * std::tanh(scaled / cap) : scaled;
  }
  // The derivative of a score by the scaled product.
  double slope(double score) const {
    const auto cap = static_cast<double>(op.softcap);
    return cap > 0 ? 1 - score / cap * (score / cap) : 1;
  }

  // The place of (sequence, head, query) among all, and that of one of its keys.
  std::int64_t place(std::int64_t query) const {
    return (sequence * op.shape.heads + head) * op.shape.queries + query;
  }
  double kept(std::int64_t query, std::int64_t key) const {
    return dropout_factor(op.dropout, place(query) * op.shape.keys + key);
  }

  const Op& op;
  std::int64_t sequence, head, kv_head;
  Head<T> q, k, v;
  Elements<S> biases;
};

double log_sum_exp(const std::vector<double>& scores) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const double score : scores) largest = std::max(largest, score);
  if (std::isinf(largest)) return largest;
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - largest);
  return largest + std::log(sum);
}

// exp(score - log_sum); 0 for a query that attends to no key.
double probability(double score, double log_sum) {
  return std::isinf(score) && score < 0 ? 0 : std::exp(score - log_sum);
}

template <class T, class S>
void forward(const Attention& op, std::int64_t sequence, std::int64_t head) {
  const Looks<Attention, T, S> looks(op, sequence, head);
  const Head<T> out({op.out, 0}, sequence, op.shape.queries, head, op.shape.head_size);
  const Elements<S> log_sums(op.log_sum), probabilities(op.probabilities);
  const auto keys = static_cast<std::size_t>(op.shape.keys);
  std::vector<double> scores(keys), weights(keys);
  for (std::int64_t query = 0; query < op.shape.queries; ++query) {
    for (std::size_t j = 0; j < keys; ++j) {
      scores[j] = looks.score(query, static_cast<std::int64_t>(j));
    }
    const double log_sum = log_sum_exp(scores);
    log_sums.set(looks.place(query), log_sum);
    for (std::size_t j = 0; j < keys; ++j) {
      const auto key = static_cast<std::int64_t>(j);
      const double p = probability(scores[j], log_sum);
      if (probabilities.given()) probabilities.set(looks.place(query), key, p);
      weights[j] = p * looks.kept(query, key);
    }
    for (std::int64_t i = 0; i < op.shape.head_size; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < keys; ++j) {
        if (weights[j] != 0) sum += weights[j] * looks.v(static_cast<std::int64_t>(j), i);
      }
      out.set(query, i, sum);
    }
  }
}

// Gradients of the keys and values of one head, summed over the query heads that use it, and of all
// biases.
struct KeyGradients {
  std::vector<double> dk, dv;  // [keys, head_size]
  std::vector<double>& dbias;  // [heads, distances]
};

template <class T, class S>
void backward(const AttentionBackward& op, std::int64_t sequence, std::int64_t head,
              KeyGradients& gradients) {
  const Looks<AttentionBackward, T, S> looks(op, sequence, head);
  const std::int64_t size = op.shape.head_size;
  const Head<T> dout({op.dout, 0}, sequence, op.shape.queries, head, size);
  const Head<T> out({op.out, 0}, sequence, op.shape.queries, head, size);
  const Head<T> dq(op.dq, sequence, op.shape.queries, head, size);
  const Elements<S> log_sums(op.log_sum);
  const auto keys = static_cast<std::size_t>(op.shape.keys);
  std::vector<double> p(keys), dp(keys), slopes(keys);
  for (std::int64_t query = 0; query < op.shape.queries; ++query) {
    // The sum of p dp over all keys that out is of, which may be more than these.
    double expected_dp = 0;
    for (std::int64_t i = 0; i < size; ++i) expected_dp += dout(query, i) * out(query, i);
    for (std::size_t j = 0; j < keys; ++j) {
      const auto key = static_cast<std::int64_t>(j);
      const double score = looks.score(query, key);
      p[j] = probability(score, log_sums[looks.place(query)]);
      if (p[j] == 0) continue;
      slopes[j] = looks.slope(score);
      const double kept = looks.kept(query, key);
      double sum = 0;
      for (std::int64_t i = 0; i < size; ++i) {
        sum += dout(query, i) * looks.v(key, i);
        gradients.dv[j * static_cast<std::size_t>(size) + static_cast<std::size_t>(i)] +=
            p[j] * kept * dout(query, i);
      }
      dp[j] = sum * kept;
    }
    std::vector<double> dquery(static_cast<std::size_t>(size));
    for (std::size_t j = 0; j < keys; ++j) {
      if (p[j] == 0) continue;
      const double dscaled = p[j] * (dp[j] - expected_dp) * slopes[j];
      if (looks.biases.given()) {
        gradients.dbias[static_cast<std::size_t>(
            head * op.shape.distances + looks.bias_place(query, static_cast<std::int64_t>(j)))] +=
            dscaled;
      }
      const double dscore = dscaled * static_cast<double>(op.scale);
      for (std::size_t i = 0; i < dquery.size(); ++i) {
        const auto column = static_cast<std::int64_t>(i);
        dquery[i] += dscore * looks.k(static_cast<std::int64_t>(j), column);
        gradients.dk[j * dquery.size() + i] += dscore * looks.q(query, column);
      }
    }
    for (std::size_t i = 0; i < dquery.size(); ++i) {
      dq.set(query, static_cast<std::int64_t>(i), dquery[i]);
    }
  }
}

template <class T>
void store(const std::vector<double>& gradient, const Head<T>& head, const AttentionShape& shape) {
  for (std::int64_t key = 0; key < shape.keys; ++key) {
    for (std::int64_t i = 0; i < shape.head_size; ++i) {
      head.set(key, i, gradient[static_cast<std::size_t>(key * shape.head_size + i)]);
    }
  }
}

}  // namespace

void run(const Attention& op) {
  with_float_type(op.shape.dtype, [&]<class T>(T) {
    with_float_type(op.log_sum.dtype(), [&]<class S>(S) {
      for (std::int64_t sequence = 0; sequence < op.shape.batch; ++sequence) {
        for (std::int64_t head = 0; head < op.shape.heads; ++head) {
          forward<T, S>(op, sequence, head);
        }
      }
    });
  });
}

void run(const AttentionBackward& op) {
  const AttentionShape& shape = op.shape;
  const std::int64_t group = shape.heads / shape.kv_heads;
  with_float_type(shape.dtype, [&]<class T>(T) {
    with_float_type(op.log_sum.dtype(), [&]<class S>(S) {
      std::vector<double> dbias(static_cast<std::size_t>(shape.heads * shape.distances));
      for (std::int64_t sequence = 0; sequence < shape.batch; ++sequence) {
        for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
          const auto elements = static_cast<std::size_t>(shape.keys * shape.head_size);
          KeyGradients sums{std::vector<double>(elements), std::vector<double>(elements), dbias};
          for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
            backward<T, S>(op, sequence, head, sums);
          }
          store(sums.dk, Head<T>(op.dk, sequence, shape.keys, kv_head, shape.head_size), shape);
          store(sums.dv, Head<T>(op.dv, sequence, shape.keys, kv_head, shape.head_size), shape);
        }
      }
      const Elements<S> to(op.dbias);
      for (std::size_t i = 0; i < dbias.size(); ++i) to.set(static_cast<std::int64_t>(i), dbias[i]);
    });
  });
}

void run(const MergeAttention& op) {
  with_float_type(op.more.dtype(), [&]<class T>(T) {
    with_float_type(op.out.dtype(), [&]<class Statistic>(Statistic) {
      const Elements<T> more(op.more);
      const Elements<Statistic> out(op.out), log_sum(op.log_sum), more_log_sum(op.more_log_sum);
      const std::int64_t head_size = op.more.shape()[1] / op.heads;
      for (std::int64_t head = 0; head < op.heads; ++head) {
        for (std::int64_t query = 0; query < op.more.shape()[0]; ++query) {
          const double before = log_sum(head, query);
          const double added = more_log_sum(head, query);
          const double most = std::max(before, added);
          if (std::isinf(most) && most < 0) continue;
          const double total = most + std::log(std::exp(before - most) + std::exp(added - most));
          const double keeps = std::exp(before - total);
          const double takes = std::exp(added - total);
          for (std::int64_t i = head * head_size; i < (head + 1) * head_size; ++i) {
            out.set(
                query, i,
                (keeps > 0 ? keeps * out(query, i) : 0) + (takes > 0 ? takes * more(query, i) : 0));
          }
          log_sum.set(head, query, total);
        }
      }
    });
  });
}

}  // namespace lockstep::ops::reference
