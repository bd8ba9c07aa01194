/** What is promised, if it comes in time; otherwise an error that says `late`. Nothing that was begun is ended by it. */
export async function within<T>(ms: number, promised: Promise<T>, late: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const ends = new Promise<never>((_, failed) => {
    timer = setTimeout(() => failed(new Error(`${late} within ${ms} ms`)), ms);
  });
  return Promise.race([promised, ends]).finally(() => clearTimeout(timer));
}
