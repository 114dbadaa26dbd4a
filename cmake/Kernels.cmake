# Files named *_avx2.cpp and *_avx512.cpp are compiled for those instruction sets; which of them
# runs is decided at run time.
foreach(source IN LISTS sources)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    if(source MATCHES "_avx2\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    elseif(source MATCHES "_avx512\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mfma;-mf16c")
    endif()
  endif()
endforeach()
