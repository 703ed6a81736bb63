// The kernel's files about RDMA devices, and addresses as text.
#pragma once

#include <infiniband/verbs.h>

#include <string>
#include <vector>

namespace weft::na::verbs {

// Where the kernel describes a device: "/sys/class/infiniband/NAME".
std::string class_folder(const std::string& device);
// The first line without trailing spaces; empty: there is no such file.
std::string first_line(const std::string& path);
// Sorted; empty: there is no such folder.
std::vector<std::string> names_in(const std::string& folder);
// In the notation of IPv6.
std::string as_text(const ibv_gid& gid);

}  // namespace weft::na::verbs
