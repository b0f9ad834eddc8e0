/** Shows an error in place of a view that threw; the rest of the page stays. */

import { Component, type ComponentChildren } from "preact";
import { RetryIcon, WarningIcon } from "./icons";
import { strings } from "../strings";

interface BoundaryProps {
  /** The subject of the error message. */
  readonly subject: string;
  /** The object that the view shows: a change of it tries again. */
  readonly of?: unknown;
  readonly children: ComponentChildren;
}

export class ErrorBoundary extends Component<BoundaryProps, { problem: unknown }> {
  override state = { problem: null as unknown };

  static override getDerivedStateFromError(problem: unknown) {
    return { problem: problem ?? "unknown" };
  }

  override componentDidCatch(problem: unknown): void {
    console.error(problem);
  }

  override componentDidUpdate(before: BoundaryProps): void {
    if (before.of !== this.props.of && this.state.problem !== null) this.setState({ problem: null });
  }

  override render() {
    if (this.state.problem === null) return this.props.children;
    return (
      <section class="broken" role="alert">
        <p>
          <WarningIcon /> {strings.crash.message(this.props.subject)}
        </p>
        <button type="button" class="button" onClick={() => location.reload()}>
          <RetryIcon /> {strings.crash.reload}
        </button>
      </section>
    );
  }
}
