// A page that cannot be drawn says so in its place; the frame and the other pages go on.

import { Component, type ComponentChildren } from "preact";

export class Boundary extends Component<{ children: ComponentChildren }, { error: Error | null }> {
  override state = { error: null as Error | null };

  override componentDidCatch(error: unknown): void {
    console.warn("the page could not be drawn", error);
    this.setState({ error: error instanceof Error ? error : new Error(String(error)) });
  }

  override render() {
    const { error } = this.state;
    if (!error) return <>{this.props.children}</>;
    return (
      <div class="notice notice-critical" role="alert">
        <p><strong>This page could not be drawn.</strong> Something in it was not as the console expects: {error.message}</p>
        <p>The figures are still in the <a href="/console/api">API</a>.</p>
        <p><button class="button" type="button" onClick={() => this.setState({ error: null })}>Draw it again</button></p>
      </div>
    );
  }
}
