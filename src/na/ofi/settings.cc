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
        // fi_av_remove() has no flags: this makes it end the connection.
        {cleanup_setting, "1"},
        // A piece of ours must stay below rxm's rendezvous. Peers must agree on it: rxm refuses a
        // connection to one with another value.
        {buffer_setting, std::to_string(fabric_bytes_max)},
        // Such buffers of an endpoint, all resident: rxm's pools grow by 1024, its default is 4096.
        {"FI_OFI_RXM_MSG_RX_SIZE", "1024"},
        // One set of those for all peers, which is so over tcp anyway. Over verbs each peer would
        // have as many of its own.
        {"FI_OFI_RXM_USE_SRX", "1"},
        // Of what a connection brings, tcp takes in so much at each look. rxm takes 32 messages of
        // all connections: where more come than that, and more than we hand out, the first
        // connections of its list take all room, and the others starve.
        {"FI_TCP_PREFETCH_RBUF_SIZE", "1024"},
        // rxm asks a card for a queue of 1024 completions for what comes in and 128 for each of so
        // many peers, 1024 unless told otherwise: more than rxe has (32767). rxm itself has no more
        // than 2048 operations of an endpoint under way, of which ours takes 1128: 16 peers' share,
        // however many there are.
        {universe_setting, "32"},
        // What libfabric keeps registered of memory that was given back, peers could still reach.
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
    // PSM, which Debian's libfabric brings along, would take the program's signals as it is loaded.
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

bool can_fence(const Row& row) {
    if (!load_library().ok()) return false;  // Which sets what the user has not.
    // Without either, transfers of a peer that went away could not be ended.
    if (!is_on(value_of(cleanup_setting))) return false;
    if (row.closing_fences) return value_of(cache_setting) == "0";
    // The native one ignores the setting.
    return row.provider(library().version()).ends_with(";ofi_rxm");
}

bool started_before_us(const Fabric& fabric) {
    // The one setting of ours that can be read back.
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
