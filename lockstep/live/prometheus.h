// Runs in the text format that Prometheus reads (version 0.0.4).
#pragma once

#include <memory>
#include <span>
#include <string>

#include "lockstep/live/run_follower.h"

namespace lockstep::live {

inline constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

// Every metric has a label "run". What a run does not have is left out, and so is a metric that no
// run has.
std::string prometheus_text(std::span<const std::shared_ptr<RunFollower>> runs);

}  // namespace lockstep::live
