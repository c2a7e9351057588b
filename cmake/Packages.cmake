# The third-party packages that src/LAYERS may name, each as an interface target hadal_pkg_NAME. All are Debian packages;
# what has a static library is linked statically, so that the program can travel to another machine.
find_package(Threads REQUIRED)

function(hadal_package name)
  add_library(hadal_pkg_${name} INTERFACE)
  foreach(lib IN LISTS ARGN)
    if(lib MATCHES "^static:(.+)$")
      find_library(HADAL_LIB_${CMAKE_MATCH_1} lib${CMAKE_MATCH_1}.a REQUIRED)
      mark_as_advanced(HADAL_LIB_${CMAKE_MATCH_1})
      target_link_libraries(hadal_pkg_${name} INTERFACE ${HADAL_LIB_${CMAKE_MATCH_1}})
    else()
      target_link_libraries(hadal_pkg_${name} INTERFACE ${lib})
    endif()
  endforeach()
endfunction()

hadal_package(fmt)       # headers only: base/core/fmt_impl.cc holds the one copy of the code
hadal_package(spdlog)    # headers only, seen by base/core/log.cc alone
hadal_package(xxhash)    # headers only, XXH_INLINE_ALL
hadal_package(json)
hadal_package(cli11)
hadal_package(toml)
hadal_package(boost Threads::Threads)
if(HADAL_SANITIZE MATCHES thread)
  # Asio fences memory beside its locks; ThreadSanitizer does not follow fences and GCC says so.
  target_compile_options(hadal_pkg_boost INTERFACE -Wno-tsan)
endif()
hadal_package(openssl static:ssl static:crypto ${CMAKE_DL_LIBS} Threads::Threads)
hadal_package(utf8proc static:utf8proc)
hadal_package(sqlite static:sqlite3 ${CMAKE_DL_LIBS} m)
hadal_package(lmdb static:lmdb)
hadal_package(uring static:uring)
hadal_package(zstd static:zstd)
hadal_package(zlib static:z)
hadal_package(png static:png static:z m)
hadal_package(jpeg static:turbojpeg)
hadal_package(webp static:webp m)
hadal_package(simdjson simdjson)
hadal_package(dl ${CMAKE_DL_LIBS})
hadal_package(jemalloc static:jemalloc_pic ${CMAKE_DL_LIBS} m Threads::Threads)  # malloc of the program, not of tests
