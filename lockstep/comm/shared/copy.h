// Copies of data that another core has just written.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::shared {

// Like std::memcpy, but `to` may equal `from`, and lines are prefetched further ahead: those of
// `from`, and perhaps of `to`, are in another core's cache.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes);

// The same for data that does not fit into the cache: uses non-temporal stores if the CPU has them,
// so that lines are not read before they are overwritten.
void stream_bytes(std::byte* to, const std::byte* from, std::size_t bytes);

// Copies to several places, any of which may equal `from`. Lines of `from` are fetched once.
void copy_to_all(std::span<std::byte* const> to, const std::byte* from, std::size_t bytes);
void stream_to_all(std::span<std::byte* const> to, const std::byte* from, std::size_t bytes);

}  // namespace lockstep::shared
