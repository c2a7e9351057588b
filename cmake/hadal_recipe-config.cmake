# The installed codec: target hadal::recipe. Needs libcrypto and libutf8proc of the system.
get_filename_component(hadal_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET hadal::recipe)
  find_package(Threads REQUIRED)
  add_library(hadal::recipe INTERFACE IMPORTED)
  set_target_properties(hadal::recipe PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${hadal_prefix}/include/hadal")
  target_compile_features(hadal::recipe INTERFACE cxx_std_20)
  set(hadal_libs)
  foreach(name gateway_anthropic gateway_openai gateway_recipe base_tokenizer base_core)
    list(APPEND hadal_libs "${hadal_prefix}/lib/libhadal_${name}.a")
  endforeach()
  target_link_libraries(hadal::recipe INTERFACE -Wl,--start-group ${hadal_libs} -Wl,--end-group utf8proc crypto
    ${CMAKE_DL_LIBS} Threads::Threads)
endif()
