// Errors across a boundary of plain functions: 0, or -1 with a message.
#pragma once
#include <cstring>
#include <exception>

static thread_local char message[256];

template <class Call>
static int attempt(Call call) {
  try {
    call();
    return 0;
  } catch (const std::exception& error) {
    std::strncpy(message, error.what(), sizeof message - 1);
    return -1;
  }
}
