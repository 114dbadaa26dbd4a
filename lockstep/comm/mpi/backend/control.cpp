#include "lockstep/comm/mpi/backend/control.h"

#include <algorithm>
#include <cstring>

#include "lockstep/comm/mpi/backend/environment.h"

namespace lockstep::mpi {

ControlMessage failure_message(const Error& error) {
  ControlMessage message;
  message.kind = ControlMessage::Kind::kFailed;
  message.code = static_cast<std::int32_t>(error.code());
  message.rank_count =
      std::min<std::int32_t>(ControlMessage::kMostRanks, static_cast<int>(error.ranks().size()));
  std::copy_n(error.ranks().begin(), message.rank_count, message.ranks);
  std::strncpy(message.text, error.what(), sizeof(message.text) - 1);
  return message;
}

Error error_of(const ControlMessage& message) {
  return Error(static_cast<ErrorCode>(message.code), message.text,
               {message.ranks, message.ranks + message.rank_count});
}

ControlChannel::ControlChannel(MPI_Comm comm, int rank, int size)
    : comm_(comm), rank_(rank), size_(size) {
  listen();
}

void ControlChannel::listen() {
  expect(MPI_Irecv(&incoming_, sizeof(incoming_), MPI_BYTE, MPI_ANY_SOURCE, kControlTag, comm_,
                   &request_),
         "MPI_Irecv");
}

void ControlChannel::drop_sent() {
  while (!outgoing_.empty()) {
    int done = 0;
    MPI_Test(&outgoing_.front().request, &done, MPI_STATUS_IGNORE);
    if (done == 0) return;
    outgoing_.pop_front();
  }
}

void ControlChannel::send(int to, ControlMessage message) {
  drop_sent();
  message.sender = rank_;
  Outgoing& out = outgoing_.emplace_back();
  out.message = message;
  expect(
      MPI_Isend(&out.message, sizeof(out.message), MPI_BYTE, to, kControlTag, comm_, &out.request),
      "MPI_Isend");
}

void ControlChannel::send_to_all(const ControlMessage& message) {
  for (int to = 0; to < size_; ++to) {
    if (to != rank_) send(to, message);
  }
}

std::optional<ControlMessage> ControlChannel::receive() {
  if (request_ == MPI_REQUEST_NULL) return std::nullopt;
  int come = 0;
  expect(MPI_Test(&request_, &come, MPI_STATUS_IGNORE), "MPI_Test");
  if (come == 0) return std::nullopt;
  const ControlMessage message = incoming_;
  listen();
  return message;
}

void ControlChannel::signal(int to) {
  drop_sent();
  Outgoing& out = outgoing_.emplace_back();
  expect(MPI_Isend(&out.message, 0, MPI_BYTE, to, kSignalTag, comm_, &out.request), "MPI_Isend");
}

void ControlChannel::close() {
  if (request_ == MPI_REQUEST_NULL) return;
  MPI_Cancel(&request_);
  MPI_Wait(&request_, MPI_STATUS_IGNORE);
  drop_sent();
}

}  // namespace lockstep::mpi
