// Networks as people write them.
#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/comm/schedule/topology.h"

namespace lockstep::schedule {
namespace {

constexpr std::string_view kExample = "alpha=5us,bandwidth=100Gbit";

int parse_count(std::string_view key, std::string_view text, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    fail(ErrorCode::kInvalidArgument, "{}={} should be a whole number from {} up", key, text,
         least);
  }
  return value;
}

std::vector<int> parse_extents(std::string_view key, std::string_view text) {
  std::vector<int> extents;
  for (const std::string_view extent : split_text(text, 'x')) {
    extents.push_back(parse_count(key, extent, 1));
  }
  return extents;
}

double parse_ratio(std::string_view key, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 1) || value > 1e6) {
    fail(ErrorCode::kInvalidArgument,
         "{}={} should be a number from 1 up: how much more the leaf's nodes can send than its "
         "uplinks can carry",
         key, text);
  }
  return value;
}

double parse_bandwidth(std::string_view key, std::string_view text) {
  const double rate = parse_bytes_per_second(text);
  if (rate <= 0) fail(ErrorCode::kInvalidArgument, "{}={} must be more than 0", key, text);
  return rate;
}

Link parse_link(std::string_view key, std::string_view text) {
  std::vector<std::string_view> names;
  for (const NamedLink& named : named_links()) {
    if (named.name == text) return named.link;
    names.push_back(named.name);
  }
  fail(ErrorCode::kInvalidArgument, "{}={} is not a known link{}; expected one of {}", key, text,
       did_you_mean(text, names), fmt::join(names, ", "));
}

struct Key {
  std::string_view name;
  void (*set)(Network& network, std::string_view key, std::string_view value);
};

using Text = std::string_view;
// Named links come first, so that single figures given beside them count.
constexpr Key kKeys[] = {
    {"outer", [](Network& n, Text k, Text v) { n.outer = parse_link(k, v); }},
    {"inner", [](Network& n, Text k, Text v) { n.inner = parse_link(k, v); }},
    {"alpha", [](Network& n, Text, Text v) { n.outer.alpha = parse_seconds(v); }},
    {"bandwidth", [](Network& n, Text k, Text v) { n.outer.bandwidth = parse_bandwidth(k, v); }},
    {"inner_alpha", [](Network& n, Text, Text v) { n.inner.alpha = parse_seconds(v); }},
    {"inner_bandwidth",
     [](Network& n, Text k, Text v) { n.inner.bandwidth = parse_bandwidth(k, v); }},
    {"inner_over_roots",
     [](Network& n, Text k, Text v) { n.inner_over_roots = parse_count(k, v, 0) > 0; }},
    {"ranks_per_machine",
     [](Network& n, Text k, Text v) { n.ranks_per_machine = parse_count(k, v, 1); }},
    {"machines_per_leaf",
     [](Network& n, Text k, Text v) { n.machines_per_leaf = parse_count(k, v, 0); }},
    {"oversubscription",
     [](Network& n, Text k, Text v) { n.oversubscription = parse_ratio(k, v); }},
    {"spine_alpha", [](Network& n, Text, Text v) { n.spine_alpha = parse_seconds(v); }},
    {"nics_per_machine",
     [](Network& n, Text k, Text v) { n.nics_per_machine = parse_count(k, v, 1); }},
    {"ranks_per_root", [](Network& n, Text k, Text v) { n.ranks_per_root = parse_count(k, v, 1); }},
    {"root_bandwidth",
     [](Network& n, Text k, Text v) { n.root_bandwidth = parse_bandwidth(k, v); }},
    {"torus", [](Network& n, Text k, Text v) { n.torus = parse_extents(k, v); }},
    {"hop_alpha", [](Network& n, Text, Text v) { n.hop_alpha = parse_seconds(v); }},
    {"gamma",
     [](Network& n, Text k, Text v) {
       // Written as the rate at which bytes are combined, or as seconds a byte.
       n.gamma = v.find('B') != Text::npos || v.ends_with("bit") ? 1 / parse_bandwidth(k, v)
                                                                 : parse_seconds(v);
     }},
};

std::map<std::string_view, std::string_view> parse_pairs(std::string_view text) {
  std::vector<std::string_view> names;
  for (const Key& key : kKeys) names.push_back(key.name);
  std::map<std::string_view, std::string_view> values;
  for (std::string_view pair : split_text(text, ',')) {
    const auto equals = pair.find('=');
    if (equals == std::string_view::npos) {
      fail(ErrorCode::kInvalidArgument, "'{}' is not of the form key=value; write it like {}",
           trim(pair), kExample);
    }
    const std::string_view key = trim(pair.substr(0, equals));
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      fail(ErrorCode::kInvalidArgument, "unknown network parameter '{}'{}; expected one of {}", key,
           did_you_mean(key, names), fmt::join(names, ", "));
    }
    if (!values.emplace(key, trim(pair.substr(equals + 1))).second) {
      fail(ErrorCode::kInvalidArgument, "'{}' is given twice", key);
    }
  }
  return values;
}

}  // namespace

Network parse_network(std::string_view text) {
  const auto values = parse_pairs(text);
  const auto given = [&](std::string_view key) { return values.count(key) > 0; };
  if (!given("outer") && !(given("alpha") && given("bandwidth"))) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' does not describe the link between nodes; give alpha and bandwidth, like {}, or a "
         "named link, like outer=rdma",
         text, kExample);
  }
  if (given("oversubscription") && !given("machines_per_leaf")) {
    fail(
        ErrorCode::kInvalidArgument,
        "oversubscription describes the uplinks of leaf switches; give machines_per_leaf=..., too");
  }
  if (given("spine_alpha") && !given("machines_per_leaf")) {
    fail(ErrorCode::kInvalidArgument,
         "spine_alpha is the delay between leaf switches; give machines_per_leaf=..., too");
  }
  if (given("ranks_per_root") != given("root_bandwidth")) {
    fail(ErrorCode::kInvalidArgument,
         "ranks_per_root and root_bandwidth say together how ranks share a PCIe root; give both");
  }
  if (given("inner_over_roots") && !given("ranks_per_root")) {
    fail(ErrorCode::kInvalidArgument,
         "inner_over_roots is about PCIe roots; say ranks_per_root=... and root_bandwidth=... too");
  }
  if (given("hop_alpha") && !given("torus")) {
    fail(ErrorCode::kInvalidArgument, "hop_alpha is about the links of a torus; say torus=4x4 too");
  }
  for (const std::string_view key : {"machines_per_leaf", "nics_per_machine"}) {
    if (given("torus") && given(key)) {
      fail(ErrorCode::kInvalidArgument,
           "{} is about nodes on switches; those of a torus have a link to each neighbour", key);
    }
  }
  Network network;
  const auto apply = [&](bool inner) {
    for (const Key& key : kKeys) {
      if (key.name.starts_with("inner") == inner && given(key.name)) {
        key.set(network, key.name, values.at(key.name));
      }
    }
  };
  apply(false);
  network.inner = network.outer;
  apply(true);
  return network;
}

Topology Network::with_machines(std::vector<int> machines) const {
  std::map<int, int> numbers;
  for (int& machine : machines) {
    machine = numbers.try_emplace(machine, static_cast<int>(numbers.size())).first->second;
  }
  const auto places = std::accumulate(torus.begin(), torus.end(), 1LL, std::multiplies<>());
  if (!torus.empty() && places != std::ssize(numbers)) {
    fail(ErrorCode::kInvalidArgument, "torus={} has {} places, but there are {} nodes",
         fmt::join(torus, "x"), places, numbers.size());
  }
  return {.machines = std::move(machines),
          .inner = inner,
          .outer = outer,
          .machines_per_leaf = machines_per_leaf,
          .oversubscription = oversubscription,
          .spine_alpha = spine_alpha,
          .gamma = gamma,
          .nics_per_machine = nics_per_machine,
          .ranks_per_root = ranks_per_root,
          .root_bandwidth = root_bandwidth,
          .inner_over_roots = inner_over_roots,
          .torus = torus,
          .hop_alpha = hop_alpha};
}

Topology Network::with_ranks(int ranks) const {
  return with_machines(machines_topology(ranks, ranks_per_machine, inner, outer).machines);
}

std::string describe(const Network& network) {
  const auto link = [](const Link& l) {
    return fmt::format("{} + bytes / ({})", format_seconds(l.alpha),
                       format_bytes_per_second(l.bandwidth));
  };
  std::string text;
  if (network.ranks_per_machine > 1) {
    text = fmt::format("{} ranks a node; ", network.ranks_per_machine);
  }
  if (network.inner == network.outer) {
    text += fmt::format("a message takes {}", link(network.outer));
  } else {
    text += fmt::format("a message inside a node takes {}, between nodes {}", link(network.inner),
                        link(network.outer));
  }
  if (network.nics_per_machine > 1) {
    text += fmt::format("; {} NICs a node", network.nics_per_machine);
  }
  if (network.ranks_per_root > 0) {
    text += fmt::format("; {} ranks share a PCIe root of {}", network.ranks_per_root,
                        format_bytes_per_second(network.root_bandwidth));
    if (network.inner_over_roots) text += ", also inside the node";
  }
  if (!network.torus.empty()) {
    text += fmt::format("; nodes on a torus of {} with such a link to each neighbour",
                        fmt::join(network.torus, "x"));
    if (network.hop_alpha > 0) {
      text += fmt::format(", {} more for each further link", format_seconds(network.hop_alpha));
    }
  }
  if (network.machines_per_leaf > 0) {
    text += fmt::format("; {} nodes per leaf switch, uplinks oversubscribed {}:1",
                        network.machines_per_leaf, network.oversubscription);
    if (network.spine_alpha > 0) {
      text += fmt::format(", {} more over the spine", format_seconds(network.spine_alpha));
    }
  }
  if (network.gamma > 0) {
    text += fmt::format("; {} combined", format_bytes_per_second(1 / network.gamma));
  }
  return text;
}

}  // namespace lockstep::schedule
