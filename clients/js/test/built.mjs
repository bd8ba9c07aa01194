// The built package: CLIENT_DIST names its directory. See ../run.
const dist = process.env.CLIENT_DIST;
if (!dist) throw new Error("CLIENT_DIST names no directory: run clients/js/run, which builds the package and sets it");
/// Imports a module of the built package.
export const built = (name) => import(`${dist}/${name}.js`);
