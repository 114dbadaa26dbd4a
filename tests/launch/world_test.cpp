#include "lockstep/launch/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/launch/make_world.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

World world_of(Variables variables, const WorldOverrides& overrides = {}) {
  return find_world(overrides, [variables = std::move(variables)](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(Variables variables, const WorldOverrides& overrides = {}) {
  try {
    world_of(std::move(variables), overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

const Variables kTorchrun{{"RANK", "5"},         {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},   {"LOCAL_WORLD_SIZE", "4"},
                          {"GROUP_RANK", "1"},   {"GROUP_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "2"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"OMPI_MCA_ess_base_jobid", "1484324865"}};
const Variables kSlurm{{"SLURM_PROCID", "3"},  {"SLURM_NTASKS", "4"},
                       {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"},
                       {"SLURM_NNODES", "2"},  {"SLURM_JOB_ID", "77"},
                       {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_NODELIST", "gpu[07-08]"}};

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

TEST(World, NothingSetIsAWorldOfOne) {
  const World world = world_of({});
  EXPECT_EQ(world.rank, 0);
  EXPECT_EQ(world.size, 1);
  EXPECT_EQ(world.local_size, 1);
  EXPECT_EQ(world.node_count, 1);
  EXPECT_EQ(world.rendezvous.host, "");
}

TEST(World, ReadsTorchrunsVariables) {
  const World world = world_of(kTorchrun);
  EXPECT_EQ(world.rank, 5);
  EXPECT_EQ(world.size, 8);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_size, 4);
  EXPECT_EQ(world.node_rank, 1);
  EXPECT_EQ(world.node_count, 2);
  EXPECT_EQ(world.rendezvous, (HostPort{"n0", 29500}));
  EXPECT_FALSE(world.rendezvous_is_hosted);
}

TEST(World, StepsAsideWhereTorchrunListensItself) {
  EXPECT_EQ(world_of(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True")).rendezvous.port,
            29501);
}

TEST(World, OurLaunchersMeetingPlaceComesBeforeMasterAddr) {
  const World world = world_of(with(with(kTorchrun, "LOCKSTEP_RENDEZVOUS", "[::1]:4000"),
                                    "LOCKSTEP_RENDEZVOUS_HOSTED", "1"));
  EXPECT_EQ(world.rendezvous, (HostPort{"::1", 4000}));
  EXPECT_TRUE(world.rendezvous_is_hosted);
}

TEST(World, ReadsOpenMpisVariablesAndAgreesOnAPort) {
  const World world = world_of(kOpenMpi);
  EXPECT_EQ(world.rank, 2);
  EXPECT_EQ(world.size, 4);
  EXPECT_EQ(world.origin, "Open MPI");
  EXPECT_EQ(world.rendezvous.host, "127.0.0.1");
  EXPECT_GE(world.rendezvous.port, 20000);
  EXPECT_LT(world.rendezvous.port, 32000);
  EXPECT_THAT(world.rendezvous_origin, HasSubstr("OMPI_MCA_ess_base_jobid"));
  EXPECT_EQ(world_of(with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "0")).rendezvous, world.rendezvous);
  EXPECT_NE(world_of(with(kOpenMpi, "OMPI_MCA_ess_base_jobid", "1")).rendezvous, world.rendezvous);
}

TEST(World, RanksThatMpiBringsTogetherNeedNoPlaceToMeet) {
  const auto two_machines =
      with(with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2"), "OMPI_COMM_WORLD_LOCAL_RANK", "0");
  EXPECT_THROW(world_of(two_machines), Error);
  const World world = world_of(two_machines, {.ranks_meet = false});
  EXPECT_EQ(world.size, 4);
  EXPECT_EQ(world.rendezvous.host, "");
}

TEST(World, ReadsPmisVariables) {
  const World world = world_of({{"PMI_RANK", "1"},
                                {"PMI_SIZE", "2"},
                                {"MPI_LOCALRANKID", "1"},
                                {"MPI_LOCALNRANKS", "2"},
                                {"PMI_FD", "6"}});
  EXPECT_EQ(world.rank, 1);
  EXPECT_EQ(world.local_size, 2);
  EXPECT_EQ(world.rendezvous.host, "127.0.0.1");
}

TEST(World, ReadsSlurmsVariablesAndMeetsOnTheFirstHost) {
  const World world = world_of(kSlurm);
  EXPECT_EQ(world.rank, 3);
  EXPECT_EQ(world.size, 4);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_size, 2);
  EXPECT_EQ(world.node_rank, 1);
  EXPECT_EQ(world.rendezvous.host, "gpu07");
  EXPECT_EQ(world_of(with(kSlurm, "SLURM_PROCID", "2")).rendezvous, world.rendezvous);
}

TEST(World, ASlurmShellWithoutAStepIsAWorldOfOne) {
  EXPECT_EQ(world_of(without(kSlurm, "SLURM_STEP_ID")).size, 1);
}

// A step of 5 ranks on nodes of 4 slots, in a job of three nodes.
TEST(World, ReadsUnevenStepsOfSlurm) {
  Variables step = kSlurm;
  step["SLURM_NTASKS"] = "5";
  step["SLURM_PROCID"] = step["SLURM_LOCALID"] = "3";
  step["SLURM_NODEID"] = "0";
  step["SLURM_NNODES"] = "3";
  step["SLURM_STEP_NUM_NODES"] = "2";
  step["SLURM_TASKS_PER_NODE"] = "4(x3)";
  step["SLURM_STEP_TASKS_PER_NODE"] = "4,1";
  step["SLURM_JOB_NODELIST"] = "gpu[06-08]";
  step["SLURM_STEP_NODELIST"] = "gpu[07-08]";
  const World fourth = world_of(step);
  EXPECT_EQ(fourth.local_rank, 3);
  EXPECT_EQ(fourth.local_size, 4);
  EXPECT_EQ(fourth.node_count, 2);
  EXPECT_EQ(fourth.rendezvous.host, "gpu07");
  step["SLURM_PROCID"] = "4";
  step["SLURM_LOCALID"] = "0";
  step["SLURM_NODEID"] = "1";
  const World last = world_of(step);
  EXPECT_EQ(last.local_size, 1);
  EXPECT_EQ(last.node_rank, 1);
  EXPECT_EQ(last.rendezvous, fourth.rendezvous);
}

// With srun --mpi=pmi2 ranks come from PMI, which does not describe nodes.
TEST(World, ASlurmStepWithPmiKnowsItsMachines) {
  Variables step = kSlurm;
  step["PMI_RANK"] = "3";
  step["PMI_SIZE"] = "4";
  step["PMI_FD"] = "9";
  const World world = world_of(step);
  EXPECT_EQ(world.origin, "PMI");
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_size, 2);
  EXPECT_EQ(world.node_rank, 1);
  EXPECT_EQ(world.rendezvous, world_of(kSlurm).rendezvous);
  // Under mpiexec, Slurm's variables are those of the proxies that it starts on every node.
  step["SLURM_PROCID"] = "1";
  step["SLURM_NTASKS"] = "2";
  step["MPI_LOCALRANKID"] = "0";
  step["MPI_LOCALNRANKS"] = "3";
  EXPECT_EQ(world_of(step).local_size, 3);
  EXPECT_EQ(world_of(step).local_rank, 0);
}

TEST(World, FindsTheTasksOfANodeInSlurmsLists) {
  EXPECT_EQ(slurm_tasks_of_node("4", 0), 4);
  EXPECT_EQ(slurm_tasks_of_node("4(x2),1", 1), 4);
  EXPECT_EQ(slurm_tasks_of_node("4(x2),1", 2), 1);
  EXPECT_EQ(slurm_tasks_of_node("2,16(x10)", 10), 16);
  for (const char* list : {"", "4", "4(x2),", "4,(x2)", "x", "4(x", "4,0", "4 2", "4(x1)3"}) {
    EXPECT_EQ(slurm_tasks_of_node(list, 2), std::nullopt) << list;
  }
}

TEST(World, FlagsComeFirst) {
  const World world =
      world_of(kTorchrun, {.rank = 0, .size = 2, .rendezvous = HostPort{"127.0.0.1", 9999}});
  EXPECT_EQ(world.rank, 0);
  EXPECT_EQ(world.size, 2);
  EXPECT_EQ(world.rendezvous.port, 9999);
}

TEST(World, AHalfSetEnvironmentNamesWhatIsMissing) {
  EXPECT_THAT(refusal(without(kTorchrun, "WORLD_SIZE")), HasSubstr("WORLD_SIZE is not"));
  EXPECT_THAT(refusal(without(kTorchrun, "RANK")), HasSubstr("RANK is not"));
  EXPECT_THAT(refusal(without(kTorchrun, "MASTER_PORT")), HasSubstr("MASTER_PORT is not"));
  EXPECT_THAT(refusal(without(kTorchrun, "MASTER_ADDR")), HasSubstr("MASTER_ADDR is not"));
  EXPECT_THAT(refusal(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE")),
              HasSubstr("OMPI_COMM_WORLD_SIZE is not"));
  EXPECT_THAT(refusal(without(kSlurm, "SLURM_PROCID")), HasSubstr("SLURM_PROCID is not"));
  EXPECT_THAT(refusal({}, {.rank = 1}), HasSubstr("number of ranks"));
  EXPECT_THAT(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR"));
}

TEST(World, NonsenseIsRefused) {
  EXPECT_THAT(refusal(with(kTorchrun, "RANK", "two")), HasSubstr("'two'"));
  EXPECT_THAT(refusal(with(kTorchrun, "RANK", "8")), HasSubstr("8 of 8"));
  EXPECT_THAT(refusal(with(kTorchrun, "RANK", "-1")), HasSubstr("'-1'"));
  EXPECT_THAT(refusal(with(kTorchrun, "MASTER_PORT", "70000")), HasSubstr("70000"));
  EXPECT_THAT(refusal(with(kTorchrun, "WORLD_SIZE", "0")), HasSubstr("of 0"));
  EXPECT_THAT(refusal(with(kTorchrun, "GROUP_WORLD_SIZE", "0")), HasSubstr("of 0"));
}

TEST(World, FindsTheFirstHostOfSlurmsLists) {
  EXPECT_EQ(first_slurm_host("node1"), "node1");
  EXPECT_EQ(first_slurm_host("node1,node2"), "node1");
  EXPECT_EQ(first_slurm_host("node[07-09,12],gpu1"), "node07");
  EXPECT_EQ(first_slurm_host("node[3,5-6]"), "node3");
  EXPECT_EQ(first_slurm_host("a,node[3,5]"), "a");
  EXPECT_EQ(first_slurm_host("rack[1-2]-node"), "rack1-node");
}

std::string mpi_refusal(CommOptions options) {
  options.backend = Backend::kMpi;
  try {
    make_world(World{}, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    return error.what();
  }
  return "no error was thrown";
}

TEST(World, RefusesToForceWhatMpiChooses) {
  for (std::size_t i = 0; i < std::size(kScheduledCollectives); ++i) {
    CommOptions options;
    options.algorithms[i] = "fused";
    EXPECT_THAT(mpi_refusal(options),
                HasSubstr(fmt::format("comm.algorithm.{} = \"fused\" is not supported",
                                      name(kScheduledCollectives[i]))));
    EXPECT_THAT(mpi_refusal(options), HasSubstr("MPI chooses its algorithms"));
  }
  CommOptions options;
  options.transport = TransportChoice::kTcp;
  EXPECT_THAT(mpi_refusal(options), HasSubstr("comm.transport = \"tcp\" is not supported"));
}

}  // namespace
}  // namespace lockstep
