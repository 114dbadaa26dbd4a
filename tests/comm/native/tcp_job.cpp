#include "tests/comm/native/tcp_job.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "lockstep/base/text/text.h"
#include "lockstep/comm/native/group_communicator.h"
#include "lockstep/comm/native/native_fabric.h"
#include "lockstep/comm/rendezvous/rendezvous.h"

namespace lockstep::testing {
namespace {

constexpr std::uint64_t kJobTag = 1;

// What a rank tells others of itself, with another address, and without the local socket by which
// they would find that they are on one machine.
std::string published(const TcpJob& job, const std::string& text) {
  const std::vector<std::string_view> lines = split_text(text, '\n');
  if (text.empty() || lines[0].find(':') == std::string_view::npos) return text;
  std::string changed = format_host_port(job.publish(parse_host_port(lines[0])));
  if (lines.size() == 3) changed += fmt::format("\nno such socket\n{}", lines[2]);
  return changed;
}

std::unique_ptr<Communicator> join(const TcpJob& job, int rank, const HostPort& rendezvous) {
  NativeWorld world;
  world.rank = rank;
  world.size = job.ranks;
  world.token = job.tokens[static_cast<std::size_t>(rank)];
  if (rank == 0) world.stop = job.stop;
  world.exchange = [&](std::string_view key, const std::string& mine) {
    const std::string text = key == "machines" ? mine : published(job, mine);
    auto all = exchange(rendezvous, world.token, key, rank, job.ranks, text,
                        deadline_in(job.options.timeout), world.stop);
    if (key == "contacts" && job.has_contacts) job.has_contacts(rank);
    return all;
  };
  std::vector<int> members(static_cast<std::size_t>(job.ranks));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<GroupCommunicator>(
      make_native_fabric(world, job.options), kJobTag, std::move(members), job.options,
      [&](const std::string& mine) { return world.exchange("invitations", mine); });
}

}  // namespace

TcpJob quick_job(int ranks, EncryptChoice encrypt) {
  TcpJob job;
  job.ranks = ranks;
  job.options.transport = TransportChoice::kTcp;
  job.options.timeout = std::chrono::seconds(2);
  job.options.measure = false;
  job.options.cache_dir.clear();
  job.options.encrypt = encrypt;
  job.tokens.assign(static_cast<std::size_t>(ranks), mint_token());
  return job;
}

std::vector<std::optional<Error>> run_job(const TcpJob& job,
                                          const std::function<void(Communicator&)>& body) {
  RendezvousOptions quiet;
  quiet.notice = [](const std::string&) {};
  RendezvousServer server({"127.0.0.1", 0}, job.tokens.front(), job.ranks, quiet);
  const HostPort rendezvous = job.publish(server.address());
  std::vector<std::optional<Error>> errors(static_cast<std::size_t>(job.ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < job.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto world = join(job, rank, rendezvous);
        body(*world);
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(rank)] = error;
      }
    });
  }
  threads.clear();
  return errors;
}

bool results_are_right(Communicator& world) {
  const int ranks = world.size();
  const int rank = world.rank();
  bool right = true;
  for (const std::size_t count : {1u, 100u, 3001u}) {
    const auto value = [](int of, std::size_t i) {
      return static_cast<float>((i * 7 + static_cast<std::size_t>(of) * 13) % 101);
    };
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = value(rank, i);
    std::vector<float> gathered(count * static_cast<std::size_t>(ranks));
    world.all_gather(data, gathered);
    std::vector<float> expected(count);
    for (int of = 0; of < ranks; ++of) {
      for (std::size_t i = 0; i < count; ++i) {
        expected[i] += value(of, i);
        right &= gathered[static_cast<std::size_t>(of) * count + i] == value(of, i);
      }
    }
    std::vector<float> told = data;
    world.broadcast(told, ranks - 1);
    for (std::size_t i = 0; i < count; ++i) right &= told[i] == value(ranks - 1, i);
    std::vector<float> received(count);
    const int next = (rank + 1) % ranks;
    const int last = (rank + ranks - 1) % ranks;
    Work sending = world.start(send(data, next));
    world.receive(received, last);
    sending.wait();
    for (std::size_t i = 0; i < count; ++i) right &= received[i] == value(last, i);
    world.all_reduce(data);
    right &= data == expected;
    world.barrier();
  }
  world.signal((rank + 1) % ranks);
  world.wait_signal((rank + ranks - 1) % ranks);
  return right;
}

}  // namespace lockstep::testing
