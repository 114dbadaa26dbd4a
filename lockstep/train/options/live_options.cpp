#include "lockstep/train/options/live_options.h"

namespace lockstep::train {

void bind(Config& config, LiveOptions& options) {
  constexpr int kLargestPort = 65535;
  config.bind("live.port", options.port,
              "Where this run is served as a live page, by a process of its own that ends with the "
              "run; 0: it is not. The link that is printed has a token, without which nobody reads "
              "the page.",
              {.min = 0, .max = kLargestPort});
  config.bind("live.address", options.address,
              "The address that the live page is served at. Any other than this machine's own "
              "127.0.0.1 lets the network try: the page is not encrypted.");
  config.bind("live.token_file", options.token_file,
              "A file with the token of the live page, for programs that ask again and again; "
              "made with a new token if it is not there. Empty: a new token for every run.");
}

}  // namespace lockstep::train
