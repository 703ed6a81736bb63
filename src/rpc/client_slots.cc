#include "rpc/client_slots.h"

#include "base/assert.h"

namespace weft::rpc {

bool ClientSlots::add_block() {
    WEFT_ASSERT(granted <= slots_max && granted % block_slots == 0);
    if (allocated >= granted) return false;
    auto& block = blocks[allocated / block_slots];
    block.reset(new (std::nothrow) ClientSlot[block_slots]);
    if (!block) return false;
    // The lowest index is used first.
    for (std::uint32_t i = block_slots; i-- > 0;) {
        block[i].index = allocated + i;
        block[i].next_free = free;
        free = &block[i];
    }
    allocated += block_slots;
    WEFT_ASSERT(allocated <= granted);
    return true;
}

void ClientSlots::reset_slots() {
    WEFT_ASSERT(busy == 0 && extra == 0);
    for (auto& block : blocks) block.reset();
    free = nullptr;
    busy = extra = window = plain_window = granted_window = granted = allocated = 0;
}

}  // namespace weft::rpc
