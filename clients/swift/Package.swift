// swift-tools-version:5.9

import PackageDescription

let package = Package(
    name: "Weir",
    platforms: [.iOS(.v15), .macOS(.v12), .tvOS(.v15), .watchOS(.v8)],
    products: [.library(name: "Weir", targets: ["Weir"])],
    targets: [
        .target(name: "Weir"),
        // Only for the tests: who depends on this package builds none of these.
        .target(name: "WeirForms", dependencies: ["Weir"], path: "Tests/Forms"),
        .executableTarget(name: "WeirDrive", dependencies: ["Weir", "WeirForms"], path: "Tests/Drive"),
        .testTarget(name: "WeirTests", dependencies: ["Weir", "WeirForms"]),
    ]
)
