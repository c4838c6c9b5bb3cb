// Runs a generated accelerator on a card, through XRT.
//
//   driver DESIGN.xclbin INPUTS OUTPUTS [SECONDS]
//
// INPUTS is a folder with a file NAME.f32 for each input of the model: float32, row by row, one or more times the elements
// of the input, for as many passes. The accelerator runs once for each pass, or for as many as its program does, of which
// there has to be a multiple. OUTPUTS gets a file NAME.f32 for each output, with those of all passes.
// A run that takes more than SECONDS, 60 if not given, is given up.
//
// What the design is stands in design.h, which was generated: how large its memory is, where inputs and outputs lie in it
// and what their integers mean. program.bin and memory.bin are read from the folder DESIGN_FOLDER, "." if not defined.
//
//   g++ -std=c++17 -O2 driver.cpp -I$XILINX_XRT/include -L$XILINX_XRT/lib -lxrt_coreutil -pthread -o driver

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_kernel.h>

struct Tensor {  // numbers in the design's memory
  const char* name;
  uint64_t address;  // of the first, a byte
  uint32_t bytes;    // of a number
  double scale;      // number = (integer - zero) * scale
  int32_t zero;
  int32_t least, most;
  std::vector<uint64_t> shape, strides;  // strides in numbers

  uint64_t size() const {
    uint64_t found = 1;
    for (uint64_t extent : shape) found *= extent;
    return found;
  }
};

#include "design.h"

#ifndef DESIGN_FOLDER
#define DESIGN_FOLDER "."
#endif

namespace {

// Registers of the accelerator, in bytes; see accelerator.sv. XRT itself writes those of control and of the memory's base.
constexpr uint32_t PROGRAM_INDEX = 0x18, PROGRAM_WORD = 0x1c, CYCLES = 0x20, ERRORS = 0x48, IDENTIFICATION = 0x4c;

// Does a step of XRT; what it says goes behind what the step was for.
template <class Step>
auto named(const std::string& what, Step step) -> decltype(step()) {
  try {
    return step();
  } catch (const std::exception& error) {
    throw std::runtime_error(what + ": " + error.what());
  }
}

template <class Number>
std::vector<Number> read(const std::string& path) {
  std::error_code is_folder;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || std::filesystem::is_directory(path, is_folder)) throw std::runtime_error("cannot read " + path);
  std::vector<Number> found(size_t(file.tellg()) / sizeof(Number));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(found.data()), std::streamsize(found.size() * sizeof(Number)));
  return found;
}

// Calls visit(number of the element, its place in memory) for all elements, row by row.
template <class Visit>
void for_each(const Tensor& tensor, uint8_t* memory, Visit visit) {
  for (uint64_t number = 0; number < tensor.size(); ++number) {
    uint64_t place = 0, rest = number;
    for (size_t axis = tensor.shape.size(); axis-- > 0; rest /= tensor.shape[axis])
      place += rest % tensor.shape[axis] * tensor.strides[axis];
    visit(number, memory + tensor.address + place * tensor.bytes);
  }
}

// Rounded to the nearest integer, halves to the even one, and kept within what the format holds.
void put(const Tensor& tensor, const float* values, uint8_t* memory) {
  for_each(tensor, memory, [&](uint64_t number, uint8_t* place) {
    const double step = std::nearbyint(double(values[number]) / tensor.scale) + tensor.zero;
    auto value = int32_t(std::clamp(step, double(tensor.least), double(tensor.most)));
    std::memcpy(place, &value, tensor.bytes);  // little endian
  });
}

void get(const Tensor& tensor, uint8_t* memory, std::vector<float>& values) {
  const int unused = 32 - int(8 * tensor.bytes);
  for_each(tensor, memory, [&](uint64_t, uint8_t* place) {
    uint32_t bits = 0;
    std::memcpy(&bits, place, tensor.bytes);
    const double step = int32_t(bits << unused) >> unused;
    values.push_back(float((step - tensor.zero) * tensor.scale));
  });
}

void run(const std::string& binary, const std::string& from, const std::string& to, long seconds) {
  std::vector<std::vector<float>> inputs, outputs(OUTPUTS[0].size());
  size_t times = PASSES;
  for (const Tensor& input : INPUTS[0]) {
    const std::string path = from + "/" + input.name + ".f32";
    inputs.push_back(read<float>(path));
    const size_t found = inputs.back().size();
    if (found == 0 || found % input.size())
      throw std::runtime_error(path + " has " + std::to_string(found) + " numbers, expected a multiple of " +
                               std::to_string(input.size()));
    if (&input == &INPUTS[0][0]) times = found / input.size();
    if (found != times * input.size())
      throw std::runtime_error(path + " has numbers for " + std::to_string(found / input.size()) +
                               " passes, the first input for " + std::to_string(times));
    if (times % PASSES)
      throw std::runtime_error(path + " has numbers for " + std::to_string(times) + " passes, and a run does " +
                               std::to_string(PASSES) + ": give a multiple");
    for (size_t i = 0; i < found; ++i)
      if (std::isnan(inputs.back()[i])) throw std::runtime_error(path + ": number " + std::to_string(i) + " is no number (NaN)");
  }
  std::error_code failed;
  std::filesystem::create_directories(to, failed);
  if (!std::filesystem::is_directory(to)) throw std::runtime_error("cannot make the folder " + to);
  const auto program = read<uint32_t>(DESIGN_FOLDER "/program.bin");
  const auto constants = read<uint8_t>(DESIGN_FOLDER "/memory.bin");
  if (program.size() != PROGRAM_WORDS || constants.size() != MEMORY_BYTES)
    throw std::runtime_error("program.bin has " + std::to_string(program.size()) + " words and memory.bin " +
                             std::to_string(constants.size()) + " bytes, design.h says " + std::to_string(PROGRAM_WORDS) +
                             " and " + std::to_string(MEMORY_BYTES) + ": they are of different designs");

  auto device = named("XRT opens no card, `xbutil examine` lists them", [] { return xrt::device(0); });
  const auto uuid = named("XRT does not load " + binary, [&] { return device.load_xclbin(binary); });
  auto kernel = named(binary + " has no kernel `" + KERNEL + "`", [&] {
    return xrt::kernel(device, uuid, KERNEL, xrt::kernel::cu_access_mode::exclusive);
  });
  if (kernel.read_register(IDENTIFICATION) != IDENTITY)
    throw std::runtime_error(binary + " is of another design: make it from the rtl/ that was written with this host/");
  auto memory = named("the card does not give " + std::to_string(MEMORY_BYTES) + " bytes of memory",
                      [&] { return xrt::bo(device, MEMORY_BYTES, kernel.group_id(0)); });
  auto* bytes = memory.map<uint8_t*>();
  std::copy(constants.begin(), constants.end(), bytes);
  memory.sync(XCL_BO_SYNC_BO_TO_DEVICE);

  kernel.write_register(PROGRAM_INDEX, 0);
  for (uint32_t word : program) kernel.write_register(PROGRAM_WORD, word);

  xrt::run start(kernel);
  start.set_arg(0, memory);
  for (size_t time = 0; time < times / PASSES; ++time) {
    for (size_t pass = 0; pass < PASSES; ++pass)
      for (size_t i = 0; i < inputs.size(); ++i) {
        const Tensor& input = INPUTS[pass][i];
        put(input, &inputs[i][(time * PASSES + pass) * input.size()], bytes);
      }
    memory.sync(XCL_BO_SYNC_BO_TO_DEVICE);
    start.start();
    if (start.wait(std::chrono::seconds(seconds)) != ERT_CMD_STATE_COMPLETED)
      throw std::runtime_error("run " + std::to_string(time) + " is not done after " + std::to_string(seconds) +
                               " s: give more as the fourth argument, or reset the card with `xbutil reset`");
    if (const uint32_t errors = kernel.read_register(ERRORS))
      throw std::runtime_error(std::string("the card's memory refused ") + (errors & 1 ? "reads" : "writes") + " in run " +
                               std::to_string(time) + ": its outputs would be wrong");
    memory.sync(XCL_BO_SYNC_BO_FROM_DEVICE);
    for (const auto& listed : OUTPUTS)
      for (size_t i = 0; i < listed.size(); ++i) get(listed[i], bytes, outputs[i]);
    std::cout << "run " << time << ": " << kernel.read_register(CYCLES) << " cycles\n";
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string path = to + "/" + OUTPUTS[0][i].name + ".f32";
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(outputs[i].data()), std::streamsize(outputs[i].size() * sizeof(float)));
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
  }
}

}  // namespace

int main(int count, char** arguments) {
  char* end = nullptr;
  const long seconds = count == 5 ? std::strtol(arguments[4], &end, 10) : 60;
  if (count < 4 || count > 5 || (end && *end) || seconds < 1) {
    std::cerr << "usage: driver DESIGN.xclbin INPUTS OUTPUTS [SECONDS]\n";
    return 2;
  }
  try {
    run(arguments[1], arguments[2], arguments[3], seconds);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
