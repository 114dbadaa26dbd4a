// The page that shows runs, as one document without references to anything outside it: live, or
// frozen with its data in it. Its sources are in live/page/.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep::live {

// Reads its data from the server that it came from. The scripts and styles in it carry `nonce`, for
// the policy that it is sent with.
std::string live_page(std::string_view nonce);

// Shows the messages (run_follower.h) of one run, without a server. `title` is plain text.
std::string frozen_page(std::string_view title, std::span<const std::string> messages);

}  // namespace lockstep::live
