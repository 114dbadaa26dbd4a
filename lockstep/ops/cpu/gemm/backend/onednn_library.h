// The oneDNN library, loaded on first use.
//
// It is loaded and not linked, so that lockstep also runs without it, and because of its OpenMP
// threads: after every product they spin for up to tens of milliseconds on the CPUs that our own
// threads need. The spin time is read from the environment when the OpenMP library is loaded, so it
// must be set before.
#pragma once

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <memory>
#include <type_traits>

namespace lockstep::cpu::gemm {

// The functions that we use, without their dnnl_.
// clang-format off
#define LOCKSTEP_ONEDNN_FUNCTIONS(F) \
  F(engine_create) F(engine_destroy) F(stream_create) F(stream_destroy) F(stream_wait) \
  F(memory_desc_init_by_strides) F(memory_desc_get_size) F(memory_create) F(memory_destroy) \
  F(memory_set_data_handle) F(matmul_desc_init) F(primitive_attr_create) \
  F(primitive_attr_destroy) F(primitive_attr_set_scratchpad_mode) F(primitive_attr_set_post_ops) \
  F(post_ops_create) F(post_ops_destroy) F(post_ops_append_sum) F(post_ops_append_binary) \
  F(primitive_desc_create) F(primitive_desc_destroy) F(primitive_desc_query) \
  F(primitive_desc_query_md) F(primitive_create) F(primitive_destroy) F(primitive_execute) \
  F(status2str)
// clang-format on

struct OnednnLibrary {
#define LOCKSTEP_MEMBER(name) decltype(&dnnl_##name) name = nullptr;
  LOCKSTEP_ONEDNN_FUNCTIONS(LOCKSTEP_MEMBER)
#undef LOCKSTEP_MEMBER
  // Of the calling thread: how many its products use.
  void (*omp_set_num_threads)(int) = nullptr;

  // Throws Error(kUnsupported) for a status that is not success.
  void expect(dnnl_status_t status, const char* what) const;
};

// Null if it is not installed; the same for all callers.
const OnednnLibrary* onednn_library();

// Destroys with the function that belongs to the object.
template <class T>
using OnednnHandle = std::unique_ptr<std::remove_pointer_t<T>, dnnl_status_t (*)(T)>;

}  // namespace lockstep::cpu::gemm
