/** Choose what happens to a message sent while another one is being answered. */

import type { Signal } from "@preact/signals";
import type { OnBusy } from "turnledger";
import { BUSY_POLICIES } from "../../composer/busy-policies";
import { strings } from "../../strings";

export function BusyPolicyPicker({ policy }: { policy: Signal<OnBusy> }) {
  const { busyPolicies } = strings.composer;
  const chosen = BUSY_POLICIES.find((name) => name === policy.value);
  return (
    <fieldset class="policies">
      <legend class="visually-hidden">{strings.composer.whenBusy}</legend>
      <span class="segments">
        {BUSY_POLICIES.map((name) => (
          <label key={name} title={busyPolicies[name].hint}>
            <input
              type="radio"
              name="policy"
              value={name}
              checked={policy.value === name}
              aria-describedby="policy-hint"
              onChange={() => (policy.value = name)}
            />
            <span>{busyPolicies[name].label}</span>
          </label>
        ))}
      </span>
      <span id="policy-hint" class="policy-hint">
        {chosen && busyPolicies[chosen].hint}
      </span>
    </fieldset>
  );
}
