// Copying what another core has just written.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep::shared {

// std::memcpy, but `to` may equal `from`, and lines are asked for well ahead: those of `from` come
// from another core's cache, and a copy of those of `to` may be there, too, further away than a
// memcpy reckons with.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes);

// The same for what is too much to stay in the cache: where the CPU can, it goes to memory past the
// cache, and no line is read only to be overwritten.
void stream_bytes(std::byte* to, const std::byte* from, std::size_t bytes);

// Both to several places, any of which may equal `from`. Lines of `from` are fetched once.
void copy_to_all(std::span<std::byte* const> to, const std::byte* from, std::size_t bytes);
void stream_to_all(std::span<std::byte* const> to, const std::byte* from, std::size_t bytes);

}  // namespace lockstep::shared
