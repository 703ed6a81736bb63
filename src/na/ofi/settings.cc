#include "na/ofi/settings.h"

#include <sys/resource.h>

#include <cstdlib>
#include <vector>

#include "na/ofi/wire.h"

namespace weft::na::ofi {

const char* const buffer_setting = "FI_OFI_RXM_BUFFER_SIZE";

namespace {

struct Setting {
    const char* name;
    std::string value;
};

constexpr const char* cleanup_setting = "FI_AV_REMOVE_CLEANUP";
constexpr const char* universe_setting = "FI_UNIVERSE_SIZE";
constexpr const char* cache_setting = "FI_MR_CACHE_MAX_COUNT";

std::vector<Setting> all_settings() {
    return {
        // fi_av_remove() has no flags: this setting makes it end the connection.
        {cleanup_setting, "1"},
        // A piece of a message must stay below rxm's rendezvous. Peers must agree on the size: rxm
        // refuses a connection to an endpoint with another value.
        {buffer_setting, std::to_string(fabric_bytes_max)},
        // Buffers of that size per endpoint, all resident: rxm's pools grow by 1024, its default is
        // 4096.
        {"FI_OFI_RXM_MSG_RX_SIZE", "1024"},
        // All peers share one set of these buffers, as tcp always has. Otherwise, over verbs, each
        // peer would have a set of its own.
        {"FI_OFI_RXM_USE_SRX", "1"},
        // The bytes that tcp reads from a connection at each poll. rxm takes 32 messages of all
        // connections: if more arrive than that, and than the endpoint hands out, the first
        // connections of its list take all room, and the others starve.
        {"FI_TCP_PREFETCH_RBUF_SIZE", "1024"},
        // rxm creates a completion queue on the device with 1024 entries for receives and 128 for
        // each of this many peers. Its default of 1024 peers is more than rxe has (32767). rxm
        // limits an endpoint to 2048 operations in flight, of which weft uses 1128: the share of 16
        // peers, however many there are.
        {universe_setting, "32"},
        // Peers could still reach freed memory that libfabric's cache keeps registered.
        {cache_setting, "0"},
    };
}

std::string value_of(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

bool is_on(std::string_view text) {
    return text == "1" || text == "on" || text == "true" || text == "yes";
}

}  // namespace

void prepare_environment() {
    // PSM, which Debian's libfabric loads, would install its own signal handlers.
    ::setenv("IPATH_NO_BACKTRACE", "1", 0);
    for (const Setting& setting : all_settings()) {
        ::setenv(setting.name, setting.value.c_str(), 0);
    }
}

std::string required_settings() {
    std::string text;
    for (const Setting& setting : all_settings()) {
        const std::string_view name = setting.name;
        if (name != cleanup_setting && name != buffer_setting && name != cache_setting) continue;
        text += (text.empty() ? "" : " ") + std::string(name) + "=" + setting.value;
    }
    return text;
}

bool can_fence(const FabricTraits& traits) {
    if (!load_library().ok()) return false;  // Loading sets what the user has not set.
    // Otherwise transfers of a disconnected peer could not be ended.
    if (!is_on(value_of(cleanup_setting))) return false;
    if (traits.deregistration_fences) return value_of(cache_setting) == "0";
    // The native tcp provider ignores the setting.
    return traits.provider(library().version()).ends_with(";ofi_rxm");
}

bool started_before_us(const Fabric& fabric) {
    // The only setting that can be read back.
    const std::string wanted = value_of(buffer_setting);
    return !wanted.empty() && is_rxm(fabric.info()) &&
           std::strtoull(wanted.c_str(), nullptr, 10) != fabric.eager_bytes_max();
}

std::string room_needed() {
    rlimit limit{};
    std::string lockable = "any amount";
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        lockable = std::to_string(limit.rlim_cur / 1024) + " KiB";
    }
    return "an endpoint locks about 72 MiB of memory (this process may lock " + lockable +
           ": `ulimit -l unlimited`) and asks the device for 128 completions for each of "
           "FI_UNIVERSE_SIZE peers (" +
           value_of(universe_setting) + ")";
}

}  // namespace weft::na::ofi
