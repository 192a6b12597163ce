// A modal dialog over the browser's own: it traps the focus, Esc closes it.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface DialogProps { title: string; onClose(): void; children: ComponentChildren; isDrawer?: boolean }

export function Dialog({ title, onClose, children, isDrawer }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    if (dialog && !dialog.open) dialog.showModal();
    return () => dialog?.close();
  }, []);
  const onClick = (event: MouseEvent) => {
    if (event.target === element.current) onClose(); // the backdrop
  };
  return (
    <dialog
      ref={element} class={isDrawer ? "dialog drawer" : "dialog"} aria-labelledby="dialog-title"
      onClick={onClick} onCancel={(event) => { event.preventDefault(); onClose(); }}
    >
      <div class="dialog-body">
        <header class="panel-head">
          <h2 id="dialog-title">{title}</h2>
          <button class="button button-quiet" type="button" onClick={onClose} aria-label="Close">✕</button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
