/** Choose what happens to a message sent while another one is being answered. */

import type { Signal } from "@preact/signals";
import type { OnBusy } from "turnledger";
import { BUSY_POLICIES } from "../../composer/busy-policies";

export function BusyPolicyPicker({ policy }: { policy: Signal<OnBusy> }) {
  const chosen = BUSY_POLICIES.find(({ name }) => name === policy.value);
  return (
    <fieldset class="policies">
      <legend>If you send now</legend>
      {BUSY_POLICIES.map(({ name, label, meaning }) => (
        <label key={name} title={meaning}>
          <input
            type="radio"
            name="policy"
            value={name}
            checked={policy.value === name}
            aria-describedby="policy-meaning"
            onChange={() => (policy.value = name)}
          />
          <span>{label}</span>
        </label>
      ))}
      <span id="policy-meaning" class="policy-meaning">
        {chosen?.meaning}
      </span>
    </fieldset>
  );
}
