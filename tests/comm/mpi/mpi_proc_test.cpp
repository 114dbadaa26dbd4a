// Runs itself under mpirun: the tests called DISABLED_Rank are what every rank then does.
#include "lockstep/comm/mpi/mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using std::filesystem::path;
using testing::HasSubstr;
using Floats = std::vector<float>;

struct Outcome {
  int status = -1;
  std::string output;
};

Outcome shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  while (std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.output.append(buffer.data(), n);
  }
  outcome.status = pclose(pipe);
  return outcome;
}

bool installed(const std::string& command) { return shell("command -v " + command).status == 0; }

std::string self() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

// `mpirun`'s `ranks` processes run DISABLED_Rank.`scenario`. MPI's own leaks are not ours; nor is
// that Open MPI's mpirun at times stays behind, deaf to SIGTERM, when ranks ended without
// MPI_Finalize.
std::string mpirun(int ranks, const std::string& scenario, const std::string& environment = "") {
  return fmt::format(
      "ASAN_OPTIONS=detect_leaks=0 {} timeout -k 5 30 mpirun --allow-run-as-root --oversubscribe "
      "-n {} "
      "{} --gtest_also_run_disabled_tests --gtest_filter=DISABLED_Rank.{}",
      environment, ranks, self(), scenario);
}

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (!installed("mpirun") ||
        !std::filesystem::exists(path(LOCKSTEP_BINARY_DIR) / "liblockstep_mpi.so")) {
      GTEST_SKIP() << "no MPI here";
    }
  }
};

TEST_F(Mpi, CollectivesAreRightForAnyNumberOfRanks) {
  for (int ranks : {1, 2, 3, 4}) {
    const Outcome outcome = shell(mpirun(ranks, "Collectives"));
    EXPECT_EQ(outcome.status, 0) << ranks << " ranks\n" << outcome.output;
  }
}

TEST_F(Mpi, CollectivesAreRightWithoutChecks) {
  const Outcome outcome = shell(mpirun(4, "Collectives", "LOCKSTEP_COMM_CHECK=0"));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST_F(Mpi, RanksThatDisagreeAreNamed) {
  const Outcome outcome = shell(mpirun(4, "Mismatch"));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

// The ranks of these leave MPI without MPI_Finalize, and mpirun ends with an error; so they count
// what they found in files, and leave together.
class MpiFailure : public Mpi {
 protected:
  void expect_all_found(int ranks, const std::string& scenario) {
    const path folder = std::filesystem::temp_directory_path() /
                        fmt::format("lockstep-mpi-{}-{}", scenario, getpid());
    std::filesystem::create_directory(folder);
    const Outcome outcome =
        shell(mpirun(ranks, scenario, fmt::format("FINDINGS={}", folder.string())));
    for (int rank = 0; rank < ranks; ++rank) {
      std::string line;
      std::getline(std::ifstream(folder / std::to_string(rank)), line);
      EXPECT_EQ(line, "as expected") << "rank " << rank << "\n" << outcome.output;
    }
    std::filesystem::remove_all(folder);
  }
};

TEST_F(MpiFailure, ARankThatStaysAwayIsNamedWhenTheDeadlinePasses) {
  expect_all_found(3, "Timeout");
}
TEST_F(MpiFailure, AbortEndsEveryRanksOperations) { expect_all_found(3, "Abort"); }
TEST_F(MpiFailure, AMessageOfAnotherSizeIsAnErrorForAll) { expect_all_found(2, "WrongMessage"); }

TEST_F(Mpi, AnotherMpisMpirunIsRecognised) {
  if (!installed("mpirun.mpich")) GTEST_SKIP() << "no second MPI here";
  const Outcome outcome =
      shell(fmt::format("ASAN_OPTIONS=detect_leaks=0 timeout 60 mpirun.mpich -n 2 {} "
                        "--gtest_also_run_disabled_tests --gtest_filter=DISABLED_Rank.Foreign",
                        self()));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(MpiModule, WhereThereIsNoneTheErrorSaysWhatToInstall) {
  setenv("LOCKSTEP_MPI_MODULE", "/nowhere/liblockstep_mpi.so", 1);
  try {
    make_mpi_communicator();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("libopenmpi-dev"));
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/liblockstep_mpi.so"));
  }
  unsetenv("LOCKSTEP_MPI_MODULE");
}

// From here on: what a rank does.

template <class T>
T number(double x) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(static_cast<float>(x));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

constexpr std::size_t kCount = 11;

// What rank r gives in element i: small enough to be exact in every type.
double given(int rank, std::size_t i) { return (rank + 1) * (i % 3 == 0 ? 2 : 1); }

double reduced(ReduceOp::Kind op, int ranks, std::size_t i) {
  double result = given(0, i);
  for (int r = 1; r < ranks; ++r) {
    const double x = given(r, i);
    switch (op) {
      case ReduceOp::kProd:
        result *= x;
        break;
      case ReduceOp::kMin:
        result = std::min(result, x);
        break;
      case ReduceOp::kMax:
        result = std::max(result, x);
        break;
      default:
        result += x;
    }
  }
  return op == ReduceOp::kMean ? result / ranks : result;
}

template <class T>
void check_reductions(Communicator& comm) {
  for (ReduceOp::Kind op :
       {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kMean}) {
    const auto expected = [&](std::size_t i) {
      const double exact = reduced(op, comm.size(), i);
      if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<int>(exact));
      return number<T>(exact);
    };
    std::vector<T> mine;
    for (std::size_t i = 0; i < kCount; ++i) mine.push_back(number<T>(given(comm.rank(), i)));
    std::vector<T> out(kCount);
    comm.all_reduce(mine, out, op);
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(out[i], expected(i)) << i;
    comm.all_reduce(mine, op);
    EXPECT_EQ(mine, out);
  }
}

void check_rooted(Communicator& comm) {
  const int n = comm.size();
  for (int root = 0; root < n; ++root) {
    const bool is_root = comm.rank() == root;
    Floats data(5, is_root ? 7.0f : 0.0f);
    comm.broadcast(data, root);
    EXPECT_EQ(data, Floats(5, 7.0f));

    Floats whole(is_root ? 2 * n : 0);
    std::iota(whole.begin(), whole.end(), 0.0f);
    Floats part(2);
    comm.scatter(whole, part, root);
    EXPECT_EQ(part, (Floats{2.0f * comm.rank(), 2.0f * comm.rank() + 1}));
    Floats back(whole.size());
    comm.gather(part, back, root);
    EXPECT_EQ(back, whole);
    if (is_root) {  // in place
      comm.scatter(whole, std::span(whole).subspan(2 * root, 2), root);
      comm.gather(std::span(back).subspan(2 * root, 2), back, root);
    } else {
      comm.scatter({}, part, root);
      comm.gather(part, {}, root);
    }
    EXPECT_EQ(back, whole);

    Floats sum(3, 1.0f);
    comm.reduce(sum, is_root ? Data(sum) : Data(), ReduceOp::kSum, root);
    if (is_root) {
      EXPECT_EQ(sum, Floats(3, static_cast<float>(n)));
    }
  }
}

void check_blocks(Communicator& comm) {
  const int n = comm.size();
  const auto rank = static_cast<float>(comm.rank());
  Floats all(n);
  comm.all_gather(Floats{rank}, all);
  Floats in_place(n, -1.0f);
  in_place[comm.rank()] = rank;
  comm.all_gather(std::span(in_place).subspan(comm.rank(), 1), in_place);
  EXPECT_EQ(in_place, all);
  for (int r = 0; r < n; ++r) EXPECT_EQ(all[r], r);

  Floats parts(2 * n);
  std::iota(parts.begin(), parts.end(), 0.0f);
  Floats mine(2);
  comm.reduce_scatter(parts, mine);
  EXPECT_EQ(mine, (Floats{2 * rank * n, (2 * rank + 1) * n}));
  comm.reduce_scatter(parts, std::span(parts).subspan(2 * comm.rank(), 2), ReduceOp::kMean);
  for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i], i);

  Floats to(n);
  for (int r = 0; r < n; ++r) to[r] = 10 * rank + r;
  Floats from(n);
  comm.all_to_all(to, from);
  for (int r = 0; r < n; ++r) EXPECT_EQ(from[r], 10 * r + rank);
  comm.all_to_all(to, to);
  EXPECT_EQ(to, from);
}

void check_varying(Communicator& comm) {
  const int n = comm.size();
  std::vector<std::size_t> counts(n);  // 0, 1, 2, ...
  std::iota(counts.begin(), counts.end(), std::size_t{0});
  Floats expected;
  for (int r = 0; r < n; ++r) expected.insert(expected.end(), r, static_cast<float>(r));
  const Floats mine(comm.rank(), static_cast<float>(comm.rank()));
  Floats all(expected.size());
  comm.run(all_gather_v(mine, all, counts));
  EXPECT_EQ(all, expected);
  const bool is_root = comm.rank() == n - 1;
  Floats gathered(is_root ? expected.size() : 0);
  comm.run(gather_v(mine, gathered, counts, n - 1));
  if (is_root) {
    EXPECT_EQ(gathered, expected);
  }
  Floats part(mine.size());
  comm.run(scatter_v(gathered, counts, part, n - 1));
  EXPECT_EQ(part, mine);

  // Rank i sends i + j elements to rank j.
  std::vector<std::size_t> sizes(n);
  std::iota(sizes.begin(), sizes.end(), static_cast<std::size_t>(comm.rank()));
  Floats to;
  Floats wanted;
  for (int r = 0; r < n; ++r) {
    to.insert(to.end(), sizes[r], static_cast<float>(100 * comm.rank() + r));
    wanted.insert(wanted.end(), sizes[r], static_cast<float>(100 * r + comm.rank()));
  }
  Floats from(wanted.size());
  comm.run(all_to_all_v(to, sizes, from, sizes));
  EXPECT_EQ(from, wanted);
  comm.run(all_to_all_v(to, sizes, to, sizes));
  EXPECT_EQ(to, wanted);
}

void check_points(Communicator& comm) {
  const int n = comm.size();
  const int next = (comm.rank() + 1) % n;
  const int previous = (comm.rank() + n - 1) % n;
  Floats copied(2);
  comm.copy(Floats{1, 2}, copied);
  EXPECT_EQ(copied, (Floats{1, 2}));
  if (n == 1) return;
  const std::vector<std::int64_t> a{comm.rank()};
  const std::vector<std::uint8_t> b(9, static_cast<std::uint8_t>(comm.rank()));
  std::vector<std::int64_t> got_a(1);
  std::vector<std::uint8_t> got_b(9);
  const Work works[] = {comm.start(send(a, next)), comm.start(send(b, next)),
                        comm.start(receive(got_a, previous)), comm.start(receive(got_b, previous))};
  for (const Work& work : works) work.wait();
  EXPECT_EQ(got_a[0], previous);
  EXPECT_EQ(got_b, std::vector<std::uint8_t>(9, static_cast<std::uint8_t>(previous)));
  comm.signal(next);
  comm.signal(next);
  comm.wait_signal(previous);
  comm.wait_signal(previous);
}

void check_several_in_flight(Communicator& comm) {
  UserReduction larger;
  larger.name = "larger of two";
  larger.combine = [](void* accumulator, const void* operand, std::size_t count, DType, void*) {
    for (std::size_t i = 0; i < count; ++i) {
      auto& a = static_cast<std::int32_t*>(accumulator)[i];
      a = std::max(a, static_cast<const std::int32_t*>(operand)[i]);
    }
  };
  std::vector<std::int32_t> user(1000, comm.rank());
  std::vector<Half> halves(77, to_half(1.0f));
  Floats sums(3000, 1.0f);
  const Work works[] = {comm.start(all_reduce(user, ReduceOp(larger))),
                        comm.start(all_reduce(halves, ReduceOp::kMax)),
                        comm.start(all_reduce(sums)), comm.start(barrier())};
  for (int w = 3; w >= 0; --w) works[w].wait();
  EXPECT_TRUE(works[0].done());
  EXPECT_EQ(user, std::vector<std::int32_t>(1000, comm.size() - 1));
  EXPECT_EQ(halves, std::vector<Half>(77, to_half(1.0f)));
  EXPECT_EQ(sums, Floats(3000, static_cast<float>(comm.size())));
}

void check_everything(Communicator& comm) {
  for (DType dtype : kAllDTypes) {
    SCOPED_TRACE(name(dtype));
    with_type(dtype, [&](auto zero) { check_reductions<decltype(zero)>(comm); });
  }
  check_rooted(comm);
  check_blocks(comm);
  check_varying(comm);
  check_points(comm);
  check_several_in_flight(comm);
  comm.all_reduce(Floats{});
  comm.barrier();
}

TEST(DISABLED_Rank, Collectives) {
  auto comm = make_mpi_communicator();
  EXPECT_EQ(comm->backend(), "mpi");
  check_everything(*comm);
  auto part = comm->split(comm->rank() % 2, -comm->rank());
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(part->size(), (comm->size() + 1 - comm->rank() % 2) / 2);
  check_everything(*part);
  EXPECT_EQ(comm->split(comm->rank() == 0 ? 0 : -1, 0) != nullptr, comm->rank() == 0);

  MpiOptions in_small_pieces;
  in_small_pieces.largest_piece = 3;
  check_everything(*make_mpi_communicator(in_small_pieces));

  const SymmetricBuffer buffer = comm->allocate(10000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0u);
  EXPECT_EQ(buffer.as<float>()[2499], 0.0f);
  EXPECT_THROW(comm->run(all_reduce(Floats{1}).with("ring")), Error);
}

TEST(DISABLED_Rank, Mismatch) {
  auto comm = make_mpi_communicator();
  const bool odd = comm->rank() == 2;
  Floats data(odd ? 12 : 10);
  for (int again = 0; again < 2; ++again) {  // the second time without asking the others
    try {
      comm->all_reduce(data);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMismatch);
      EXPECT_EQ(error.ranks(), std::vector<int>{2});
      EXPECT_THAT(error.what(), HasSubstr("ranks 0, 1 and 3 called all_reduce of 10 f32, sum"));
      EXPECT_THAT(error.what(), HasSubstr("rank 2 called all_reduce of 12 f32, sum"));
    }
  }
}

// Writes the finding of this rank and waits for those of all others.
void leave_together(const Communicator& comm, bool as_expected) {
  const path folder = std::getenv("FINDINGS");
  const path mine = folder / std::to_string(comm.rank());
  std::ofstream(mine.string() + ".part") << (as_expected ? "as expected\n" : "not as expected\n");
  std::filesystem::rename(mine.string() + ".part", mine);
  for (int rank = 0; rank < comm.size(); ++rank) {
    while (!std::filesystem::exists(folder / std::to_string(rank))) std::this_thread::yield();
  }
}

TEST(DISABLED_Rank, Timeout) {
  MpiOptions options;
  options.deadline = std::chrono::milliseconds(300);
  auto comm = make_mpi_communicator(options);
  bool as_expected = comm->rank() == 1;  // which never comes
  if (comm->rank() != 1) {
    try {
      comm->all_reduce(Floats{1});
    } catch (const Error& error) {
      as_expected = error.code() == ErrorCode::kTimeout && error.ranks() == std::vector<int>{1} &&
                    std::string(error.what()).find("rank 1 did not join") != std::string::npos;
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  leave_together(*comm, as_expected);
}

TEST(DISABLED_Rank, Abort) {
  auto comm = make_mpi_communicator();
  if (comm->rank() == 0) comm->abort("out of patience");
  bool as_expected = false;
  try {
    comm->barrier();
  } catch (const Error& error) {
    as_expected = error.code() == ErrorCode::kAborted && error.ranks() == std::vector<int>{0} &&
                  std::string(error.what()) == "rank 0 aborted: out of patience";
    std::fprintf(stderr, "%s\n", error.what());
  }
  leave_together(*comm, as_expected);
}

TEST(DISABLED_Rank, WrongMessage) {
  auto comm = make_mpi_communicator();
  bool as_expected = false;
  try {
    Floats data(100000);
    if (comm->rank() == 0) {
      comm->send(data, 1);
      comm->barrier();
    } else {
      comm->receive(std::span(data).first(5), 0);
    }
  } catch (const Error& error) {
    as_expected =
        error.code() == ErrorCode::kMismatch &&
        std::string(error.what()) == "rank 0 sends 100000 f32 where rank 1 receives 5 f32";
    std::fprintf(stderr, "%s\n", error.what());
  }
  leave_together(*comm, as_expected);
}

TEST(DISABLED_Rank, Foreign) {
  try {
    make_mpi_communicator();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("another MPI"));
  }
}

}  // namespace
}  // namespace lockstep
