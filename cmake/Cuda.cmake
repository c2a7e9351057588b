# With HADAL_CUDA=ON: the language CUDA, and hadal_module(), which makes a shared object of one folder of src/. HADAL_CUDA_ARCHS
# lists the architectures that machine code is made for (90a: H100 and H200; 100a, 120a where a kernel needs no Hopper instruction).
set(HADAL_CUDA_ARCHS "90a" CACHE STRING "architectures of the CUDA backend module, like 90a;100a;120a")

if(HADAL_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS /usr/local/cuda/bin REQUIRED)
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc 12 and newer have C++20, and takes the standard of C++ for CUDA's.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_COMPILE_FEATURES cuda_std_20)
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  find_package(CUDAToolkit REQUIRED)
  # No contraction that the source does not spell, as on the host. 554: a conversion to itself, in a template.
  set(HADAL_CUDA_FLAGS --fmad=false --expt-relaxed-constexpr --diag-suppress=554 -Xcompiler=-Wall,-Wextra,-fvisibility=hidden)
  foreach(arch IN LISTS HADAL_CUDA_ARCHS)
    list(APPEND HADAL_CUDA_FLAGS "-gencode=arch=compute_${arch},code=sm_${arch}")
  endforeach()
endif()

# lib`hadal_NAME`.so beside the program from the *.cc and *.cu of `leaf`. It exports its entry function and nothing else, and
# carries the runtime: the driver is all that it asks of a machine.
function(hadal_module name leaf deps)
  set(dir ${PROJECT_SOURCE_DIR}/src/${leaf})
  file(GLOB sources CONFIGURE_DEPENDS ${dir}/*.cc ${dir}/*.cu)
  list(FILTER sources EXCLUDE REGEX "_test\\.(cc|cu)$")
  set(target hadal_${name})
  add_library(${target} MODULE ${sources})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:${HADAL_CUDA_FLAGS}>" $<$<COMPILE_LANGUAGE:CXX>:-fvisibility=hidden>)
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,defs)
  target_link_libraries(${target} PRIVATE hadal_warnings CUDA::cudart_static)
  foreach(dep IN LISTS deps)
    hadal_target_name(${dep} dep_target)
    if(TARGET ${dep_target})
      target_link_libraries(${target} PRIVATE ${dep_target})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE CXX CUDA_RESOLVE_DEVICE_SYMBOLS OFF LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
endfunction()
