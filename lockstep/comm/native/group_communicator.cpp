#include "lockstep/comm/native/group_communicator.h"

#include <algorithm>
#include <cstring>

#include "lockstep/comm/least_bytes.h"
#include "lockstep/comm/native/hosts.h"
#include "lockstep/comm/native/texts.h"
#include "lockstep/comm/shared/collectives.h"
#include "lockstep/comm/transport/ring_channel.h"
#include "lockstep/comm/unheard.h"

namespace lockstep {
namespace {

using shared::MessageKind;
using shared::Segment;
using shared::Stream;

// Of no communicator: theirs are 1, and hashes.
constexpr std::uint64_t kNicTag = std::uint64_t{1} << 32;

int index_of(std::span<const int> values, int value) {
  const auto found = std::find(values.begin(), values.end(), value);
  return found == values.end() ? -1 : static_cast<int>(found - values.begin());
}

std::uint64_t derive_tag(std::uint64_t parent, std::uint64_t split, int color) {
  Fingerprint mixed;
  mixed.sequence = parent;
  mixed.count = split;
  mixed.root = color;
  return hash(mixed);
}

}  // namespace

GroupCommunicator::GroupCommunicator(std::shared_ptr<Fabric> fabric, std::uint64_t tag,
                                     std::vector<int> members, const CommOptions& options,
                                     const ExchangeTexts& exchange, const GroupCommunicator* parent)
    : fabric_(std::move(fabric)),
      tag_(tag),
      members_(std::move(members)),
      rank_(index_of(members_, fabric_->rank())),
      options_(options),
      nic_(parent != nullptr ? parent->nic_ : make_nic(*fabric_, options_, kNicTag)),
      inbox_(std::make_shared<Inbox>()) {
  inbox_->members = members_;
  fabric_->enroll(tag_, inbox_);
  const std::vector<int>& real = fabric_->machines();
  const std::vector<int> seen = seen_machines(*fabric_, options_);
  const int machine = real[static_cast<std::size_t>(fabric_->rank())];
  std::vector<int> local_ranks;
  std::vector<bool> is_far;
  for (int i = 0; i < size(); ++i) {
    const int world = members_[static_cast<std::size_t>(i)];
    machines_.push_back(seen[static_cast<std::size_t>(world)]);
    is_far.push_back(machines_.back() != seen[static_cast<std::size_t>(fabric_->rank())]);
    const bool near = options_.transport != TransportChoice::kTcp &&
                      real[static_cast<std::size_t>(world)] == machine;
    if (near || i == rank_) {
      locals_.push_back(world);
      local_ranks.push_back(i);
    }
  }
  traffic_ = std::make_unique<transport::Traffic>(is_far);
  if (locals_.size() > shared::kMaxLocalRanks) {
    fail(ErrorCode::kUnsupported, "{} ranks on one machine are more than the {} supported",
         locals_.size(), shared::kMaxLocalRanks);
  }
  const auto local_count = static_cast<int>(locals_.size());
  if (nic_ != nullptr && local_count < size()) {
    fail(ErrorCode::kUnsupported,
         "comm.emulate = \"{}\" emulates links between ranks of one machine, but these are on "
         "several; leave it empty, or start all ranks on one machine",
         options_.emulate);
  }
  // Whether all members share memory, with nothing emulated between them.
  const bool is_apart =
      options_.emulated_nodes > 1 && std::ranges::find(is_far, true) != is_far.end();
  const bool keeps_pace =
      nic_ != nullptr && (options_.emulated_nodes == 1 || is_apart) && size() > 1;
  const bool fused = local_count == size() && !is_apart && !keeps_pace;
  segment_memory_ = fabric_->share(tag_, locals_, Segment::bytes(local_count, options_.window));
  group_ = std::make_shared<shared::Group>(
      Segment(segment_memory_.get(), local_count, options_.window),
      index_of(locals_, fabric_->rank()), local_ranks, shares_cpu(),
      keeps_pace ? shared::kSleepAtOnce : wait_policy(), options_.wait_timeout(), inbox_->fault);
  recorder_ = std::make_unique<Recorder>(group_->segment().area(group_->me()));
  connect(exchange);
  const Links links = parent != nullptr ? parent->selector_->links()
                      : nic_ != nullptr ? emulated_links(nic_->link, options_.emulated_nodes > 1)
                                        : assumed_links();
  selector_ = std::make_unique<Selector>(machines_, fused, options_, links);
  if (parent == nullptr && local_count < size()) {
    const bool all_tcp = options_.transport == TransportChoice::kTcp;
    const Links found = find_links(*this, machines_, all_tcp, fabric_->network(), options_);
    selector_ = std::make_unique<Selector>(machines_, false, options_, found);
  }
}

// Which of the members on this node may run where this rank does.
std::vector<bool> GroupCommunicator::shares_cpu() const {
  const CpuSet mine = fabric_->cpus(fabric_->rank());
  std::vector<bool> shares;
  for (int world : locals_) shares.push_back(fabric_->cpus(world).meets(mine));
  return shares;
}

shared::WaitPolicy GroupCommunicator::wait_policy() const {
  CpuSet cpus;
  for (int world : locals_) cpus.add(fabric_->cpus(world));
  shared::WaitPolicy wait_policy =
      shared::wait_policy_for(static_cast<int>(locals_.size()), cpus.count());
  // Whether ranks outside the group may use this CPU is unknown here.
  const std::vector<int>& machines = fabric_->machines();
  const auto self = static_cast<std::size_t>(fabric_->rank());
  for (std::size_t world = 0; wait_policy.crowded && world < machines.size(); ++world) {
    const auto rank = static_cast<int>(world);
    const bool outside = machines[world] == machines[self] && index_of(locals_, rank) < 0;
    if (outside && fabric_->cpus(rank).meets(fabric_->cpus(fabric_->rank()))) wait_policy.spins = 0;
  }
  return wait_policy;
}

GroupCommunicator::~GroupCommunicator() {
  // An operation without an answer, such as a root's broadcast, is compared by the next one, and
  // the last operation has no next one. After a fault nothing is compared, because all ranks know
  // of it.
  try {
    finish();
    if (!inbox_->fault.present()) group_->compare_posts();
  } catch (const Error& error) {
    report_unheard(error);
  }
  std::vector<int> far;
  for (int world : members_) {
    if (index_of(locals_, world) < 0) far.push_back(world);
  }
  fabric_->withdraw(tag_, far, inbox_->fault.present() ? History() : history_);
  group_->leave();
}

void GroupCommunicator::finish() {
  const auto nothing = [] {};
  collectives_.run(nothing);
  for (const auto& far : peers_) {
    if (far == nullptr) continue;
    far->sends.run(nothing);
    far->receives.run(nothing);
  }
}

bool GroupCommunicator::is_paced(int member) const {
  if (nic_ == nullptr) return false;
  return options_.emulated_nodes == 1 ||
         machines_[static_cast<std::size_t>(member)] != machines_[static_cast<std::size_t>(rank_)];
}

std::unique_ptr<transport::Channel> GroupCommunicator::connect_near(Stream stream, int member,
                                                                    int local) const {
  const Segment& segment = group_->segment();
  const int me = group_->me();
  const transport::RingChannel ring(segment.ring(stream, me, local),
                                    segment.ring(stream, local, me), segment.area(local).doorbell);
  if (is_paced(member)) return std::make_unique<transport::PacedChannel>(ring, nic_);
  return std::make_unique<transport::RingChannel>(ring);
}

void GroupCommunicator::connect(const ExchangeTexts& exchange) {
  const Segment& segment = group_->segment();
  const int me = group_->me();
  peers_.resize(members_.size());
  std::vector<int> remote;
  for (int i = 0; i < size(); ++i) {
    if (i == rank_) continue;
    auto made = std::make_unique<Peer>();
    made->local = index_of(locals_, members_[static_cast<std::size_t>(i)]);
    if (made->local >= 0) {
      made->collective = connect_near(Stream::kCollective, i, made->local);
      made->point_to_point = connect_near(Stream::kPointToPoint, i, made->local);
    } else {
      remote.push_back(members_[static_cast<std::size_t>(i)]);
    }
    peers_[static_cast<std::size_t>(i)] = std::move(made);
  }
  // All ranks take part in the exchange, also those that share a node with all others.
  const std::vector<std::string> texts = exchange(fabric_->invite(tag_));
  std::map<int, std::string> invitations;
  for (int world : remote) {
    invitations[world] = texts[static_cast<std::size_t>(index_of(members_, world))];
  }
  for (auto& [world, channels] : fabric_->connect(tag_, remote, invitations)) {
    Peer& far = peer(index_of(members_, world));
    far.collective = std::move(channels.collective);
    far.point_to_point = std::move(channels.point_to_point);
  }
  const shared::WaitPolicy wait_policy = group_->wait_policy();
  shared::Doorbell* doorbell = &segment.area(me).doorbell;
  stall_monitor_ = std::make_unique<StallMonitor>(*fabric_, tag_, rank_, *inbox_, history_);
  const auto look = [this](std::chrono::nanoseconds waited, const std::vector<int>& awaited) {
    group_->check(std::chrono::nanoseconds(0));
    stall_monitor_->look(waited, awaited);
  };
  const auto blame = [this](const std::vector<int>& awaited) {
    return stall_monitor_->blame(awaited);
  };
  collective_progress_ = std::make_unique<ChannelProgress>(
      doorbell, wait_policy, options_.wait_timeout(), inbox_->fault, Watch{look, blame});
  point_to_point_progress_ = std::make_unique<ChannelProgress>(
      doorbell, wait_policy, options_.wait_timeout(), inbox_->fault, Watch{});
  std::vector<transport::Channel*> channels;
  for (const auto& far : peers_) channels.push_back(far ? far->collective.get() : nullptr);
  executor_ = std::make_unique<transport::Executor>(rank_, std::move(channels),
                                                    *collective_progress_, history_, *traffic_);
}

template <class Body>
void GroupCommunicator::guarded(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    break_down(error);
  }
}

void GroupCommunicator::break_down(const Error& error) {
  if (inbox_->fault.report(error)) fabric_->spread(tag_, members_, error);
  const Error first = *inbox_->fault.error();
  if (!dumped_.exchange(true)) dump(first);
  throw first;
}

void GroupCommunicator::run(const Call& call) {
  validate(call, rank_, size());
  switch (call.kind) {
    case Collective::kCopy:
      collectives_.run([&] {
        std::memmove(call.out.bytes, call.in.bytes, call.in.count * size_of(call.in.dtype));
      });
      return;
    case Collective::kSend: {
      Peer& far = peer(call.peer);
      far.sends.run([&, sequence = ++far.sent] { transfer(call, sequence); });
      return;
    }
    case Collective::kReceive: {
      Peer& far = peer(call.peer);
      far.receives.run([&, sequence = ++far.received] { transfer(call, sequence); });
      return;
    }
    default:
      collectives_.run([&] { execute(call); });
  }
}

Work GroupCommunicator::start(const Call& call) {
  validate(call, rank_, size());
  switch (call.kind) {
    case Collective::kCopy:
      return collectives_.submit([call] {
        std::memmove(call.out.bytes, call.in.bytes, call.in.count * size_of(call.in.dtype));
      });
    case Collective::kSend: {
      Peer& far = peer(call.peer);
      return far.sends.submit([this, call, sequence = ++far.sent] { transfer(call, sequence); });
    }
    case Collective::kReceive: {
      Peer& far = peer(call.peer);
      return far.receives.submit(
          [this, call, sequence = ++far.received] { transfer(call, sequence); });
    }
    default:
      return collectives_.submit([this, call] { execute(call); });
  }
}

void GroupCommunicator::execute(const Call& call, std::uint64_t mark) {
  Fingerprint fingerprint = fingerprint_of(call, history_.last().sequence + 1);
  if (mark != 0) fingerprint.extra = mark;
  history_.add(fingerprint);
  inbox_->started.store(fingerprint.sequence, std::memory_order_relaxed);
  shared::Record& record = recorder_->begin(fingerprint);
  const bool fused = selector_->is_fused(call);
  std::optional<Verification> verification;
  if (mark == 0 && locals_.size() == members_.size() && size() > 1 &&
      is_verified(options_.verify, call, fingerprint.sequence)) {
    verification.emplace(call, fingerprint, rank_, size(), fused);
  }
  guarded([&] {
    if (fused) {
      shared::run(*group_, call, fingerprint);
      traffic_->add_shared(least_bytes_sent(call, fingerprint, rank_, size()));
    } else {
      execute_schedule(call, selector_->algorithm(call), fingerprint);
    }
  });
  Recorder::end(record);
  if (verification) verify(*verification);
}

void GroupCommunicator::verify(Verification& verification) {
  const std::vector<std::uint64_t>& mine = verification.note();
  std::vector<std::uint64_t> all(mine.size() * members_.size());
  const auto words = [](auto& numbers) {
    return Data(const_cast<std::uint64_t*>(numbers.data()), numbers.size(), DType::kI64);
  };
  execute(lockstep::all_gather(words(mine), words(all)), kVerifyMark);
  guarded([&] { verification.compare(all); });
}

void GroupCommunicator::execute_schedule(const Call& call, const std::string& algorithm,
                                         const Fingerprint& fingerprint) {
  group_->publish(group_->begin(fingerprint));
  const transport::Prepared& program = prepared(call, algorithm);
  executor_->run(program, call.kind == Collective::kBarrier ? lockstep::barrier() : call,
                 fingerprint);
}

const transport::Prepared& GroupCommunicator::prepared(const Call& call,
                                                       const std::string& algorithm) {
  const Collective kind = call.kind == Collective::kBarrier ? Collective::kAllReduce : call.kind;
  const auto key = std::make_tuple(kind, algorithm, call.root);
  const auto found = prepared_.find(key);
  if (found != prepared_.end()) return found->second;
  const schedule::Algorithm& chosen = schedule::find_algorithm(kind, algorithm);
  schedule::Shape shape = selector_->shape();
  shape.root = call.root;
  if (const auto reason = chosen.refuses(shape)) {
    fail(ErrorCode::kUnsupported, "{} by {}: {}", name(kind), algorithm, *reason);
  }
  return prepared_[key] = transport::prepare(chosen.program(shape, rank_), chosen.chunks(shape));
}

void GroupCommunicator::transfer(const Call& call, std::uint64_t sequence) {
  inbox_->fault.throw_if_present();
  // Both sides must come to the same fingerprint, so the message is called what the sender does.
  Fingerprint fingerprint = fingerprint_of(call, sequence);
  fingerprint.kind = Collective::kSend;
  Peer& far = peer(call.peer);
  const std::uint64_t serial = recorder_->begin_message(
      {call.kind == Collective::kSend ? MessageKind::kSend : MessageKind::kReceive, call.peer,
       sequence, fingerprint.count, fingerprint.dtype});
  guarded([&] {
    if (call.kind == Collective::kSend) {
      const std::span<const std::byte> payload(call.in.bytes,
                                               call.in.count * size_of(call.in.dtype));
      traffic_->add(call.peer, payload.size());
      transport::OutgoingMessage message(*far.point_to_point, call.peer, fingerprint, payload);
      point_to_point_progress_->complete({&message, 1}, {});
    } else {
      transport::Landing landing;
      landing.target = call.out.bytes;
      landing.bytes = call.out.count * size_of(call.out.dtype);
      transport::IncomingMessage message(*far.point_to_point, rank_, call.peer, fingerprint,
                                         landing);
      point_to_point_progress_->complete({}, {&message, 1});
    }
  });
  recorder_->end_message(serial);
}

void GroupCommunicator::signal(int target) {
  inbox_->fault.throw_if_present();
  if (target < 0 || target >= size() || target == rank_) {
    fail(ErrorCode::kInvalidArgument, "signal: rank {} is not another rank of this communicator",
         target);
  }
  Peer& far = peer(target);
  const std::uint64_t serial =
      recorder_->begin_message({MessageKind::kSignal, target, ++far.signals_raised});
  if (far.local < 0) {
    fabric_->signal(tag_, members_[static_cast<std::size_t>(target)]);
  } else {
    shared::Area& area = group_->segment().area(far.local);
    area.signals[group_->me()].fetch_add(1, std::memory_order_seq_cst);
    shared::ring(area.doorbell);
  }
  recorder_->end_message(serial);
}

void GroupCommunicator::wait_signal(int source) {
  if (source < 0 || source >= size() || source == rank_) {
    fail(ErrorCode::kInvalidArgument,
         "wait_signal: rank {} is not another rank of this communicator", source);
  }
  Peer& far = peer(source);
  const std::uint64_t wanted = ++far.signals_awaited;
  const std::uint64_t serial = recorder_->begin_message({MessageKind::kWaitSignal, source, wanted});
  guarded([&] {
    if (far.local < 0) return inbox_->wait_signal(source, wanted, options_.wait_timeout());
    shared::Area& area = group_->segment().area(group_->me());
    const auto& raised = area.signals[far.local];
    shared::Waiter waiter(area.doorbell, group_->wait_policy(),
                          [&](std::chrono::nanoseconds waited) {
                            inbox_->fault.throw_if_present();
                            if (waited < options_.wait_timeout()) return;
                            throw overdue("wait_signal", waited, {source});
                          });
    waiter.until([&] { return raised.load(std::memory_order_acquire) >= wanted; });
  });
  recorder_->end_message(serial);
}

std::unique_ptr<Communicator> GroupCommunicator::split(int color, int key) {
  const auto n = static_cast<std::size_t>(size());
  const std::vector<std::int32_t> mine = {color, key};
  std::vector<std::int32_t> all(2 * n);
  const Call colors = lockstep::all_gather(mine, all);
  collectives_.run([&] { execute(colors, kSplitMark); });
  std::vector<int> chosen;  // ranks of this communicator
  for (int i = 0; i < size(); ++i) {
    if (all[2 * static_cast<std::size_t>(i)] == color) chosen.push_back(i);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [&](int a, int b) {
    return all[2 * static_cast<std::size_t>(a) + 1] < all[2 * static_cast<std::size_t>(b) + 1];
  });
  const std::uint64_t tag = derive_tag(tag_, ++splits_, color);
  if (color < 0) {
    exchange_texts(*this, {});
    return nullptr;
  }
  std::vector<int> members;
  for (int i : chosen) members.push_back(members_[static_cast<std::size_t>(i)]);
  const auto exchange = [&](const std::string& text) {
    const std::vector<std::string> everyone = exchange_texts(*this, text);
    std::vector<std::string> texts;
    for (int i : chosen) texts.push_back(everyone[static_cast<std::size_t>(i)]);
    return texts;
  };
  return std::make_unique<GroupCommunicator>(fabric_, tag, std::move(members), options_, exchange,
                                             this);
}

SymmetricBuffer GroupCommunicator::allocate(std::size_t bytes) {
  Call agree = lockstep::barrier();
  agree.in.count = bytes;
  collectives_.run([&] { execute(agree); });
  const std::uint32_t id = ++allocations_;
  std::vector<SharedMemory> memory;
  guarded([&] { memory = fabric_->exchange(tag_, id, locals_, bytes); });
  std::vector<std::byte*> bases;
  for (const SharedMemory& part : memory) bases.push_back(part.get());
  std::byte* mine = bases[static_cast<std::size_t>(group_->me())];
  group_->add_allocation(id, std::move(bases), bytes);
  const std::shared_ptr<void> owner(
      mine, [group = group_, id, memory](void*) { group->remove_allocation(id); });
  return {owner, mine, bytes};
}

void GroupCommunicator::abort(std::string_view reason) {
  const Error error(ErrorCode::kAborted, fmt::format("rank {} aborted: {}", rank_, reason),
                    {rank_});
  if (inbox_->fault.report(error)) fabric_->spread(tag_, members_, error);
}

Choice GroupCommunicator::choice(const Call& call) const { return selector_->choose(call); }

void GroupCommunicator::dump(const Error& error) const {
  std::map<int, const shared::Area*> areas;
  for (int j = 0; j < group_->size(); ++j) areas[group_->rank_of(j)] = &group_->segment().area(j);
  const std::string& folder = options_.recorder_dir;
  dump_recorders(error, rank_, size(), areas,
                 folder.empty() ? "" : fmt::format("{}/rank-{}.txt", folder, fabric_->rank()));
}

}  // namespace lockstep
