// What the launchers of a job tell each other about its generations (launch/launcher.h). All of
// them receive all messages in one order (JobLink).
//
//   any node   lost        a rank of this node is lost: may the job continue?
//              waits       a rank of this node has lost others and waits for the next generation
//              ready       no rank of this node is busy any more; these have kept their processes
//              pool        so many spares of this node are warm, and so many start
//              resize      somebody asks for another number of ranks
//              slow        a rank delays the others
//              stays       all ranks continue, though they were to regroup: their states would be
//                          lost
//   node 0     recover     the generation ends; ranks have that long to notice
//              regroup     ranks are to stop after a step, to begin in another number
//              begin       the next generation begins
//              start       nodes start spares
//              rest        a node that has joined while a generation runs takes part in a later one
//              evict       its node kills a rank, which is then lost
//              notice      a sentence for everybody
//              refused     a launcher that has come back cannot take part
//
// A message is about the generation whose number it has; of another one it is out of date.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct JobMessage {
  enum class Kind : std::uint8_t {
    kLost,
    kWaits,
    kReady,
    kRecover,
    kBegin,
    kNotice,
    kRefused,
    kPool,
    kResize,
    kRegroup,
    kSlow,
    kEvict,
    kStays,
    kStart,
    kRest,
  };
  Kind kind = Kind::kNotice;
  int generation = 0;
  // The node whose rank was lost, and which has reported it (recover); which is refused; which
  // rests.
  int node = 0;
  int rank = 0;  // waits
  // That did not answer in time (waits, recover); that have kept their processes (ready); that is
  // slow (slow, evict).
  std::vector<int> ranks;
  int exit_code = 1;                  // of a lost rank, for the job if it cannot continue
  bool ended_itself = false;          // a lost rank: by an error of its own
  bool blames = false;                // a lost rank: it ended because of others
  std::chrono::milliseconds time{0};  // recover
  // waits: not for a loss, but after a step, because of `regroup`.
  bool regrouped = false;
  // How many ranks: that begin; that somebody asks for (resize); that have failed since the
  // generation began, without those that ended because of others (ready). The number of a request
  // to regroup in its generation (regroup, stays).
  int count = 0;
  // Of every node: how many ranks it has (begin, rest), -1: it does not take part; how many spares
  // it starts (start).
  std::vector<int> counts;
  int warm = 0;           // pool: spares that can join
  int starting = 0;       // pool: others
  bool leave = false;     // recover: ranks do not notice soon that they have lost others
  bool any_kept = false;  // begin: whether any rank of the job has kept its process
  int master_port = 0;    // begin
  std::string job;        // begin: its name
  std::string text;       // for people
  std::string more;       // recover: how the job continues
};

std::string encode(const JobMessage& message);
// Nothing for any other text.
std::optional<JobMessage> decode_message(std::string_view text);

// What a launcher says about itself when it joins the others.
struct NodeFacts {
  int ranks = 1;  // of each node; 0: this node is not there
  int master_port = 0;
  int restarts = 0;  // LaunchOptions::Restarts::most
  // LaunchOptions::Elastic.
  int least = 0;
  int least_nodes = 0;
  int spares = 0;
  // Of one that had joined before: the name of the job, its generation, and the ranks that have
  // kept their processes.
  std::string job;
  int generation = -1;
  std::vector<int> kept;
};

std::string encode(const NodeFacts& facts);
// Throws Error(kProtocol) for any other text.
NodeFacts decode_facts(int node, std::string_view text);

}  // namespace lockstep
