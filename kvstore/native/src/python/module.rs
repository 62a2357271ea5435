//! The module as Python imports it.

#[pyo3::pymodule(name = "_native")]
pub mod kvstore_native {
    /// The number in kvstack/component/crate.py: raise both when an interface to Python changes.
    #[pymodule_export]
    const ABI: u32 = 3;

    #[pymodule_export]
    use crate::python::client::Client;
    #[pymodule_export]
    use crate::python::decoder::Decoder;
    #[pymodule_export]
    use crate::python::http_server::{Head, HttpServer};
    #[pymodule_export]
    use crate::python::kernels::{Kernels, PlainCalls};
    #[pymodule_export]
    use crate::python::log::encode_entries;
    #[pymodule_export]
    use crate::python::rows::RowSums;
    #[pymodule_export]
    use crate::python::server::Server;
    #[pymodule_export]
    use crate::python::yaml::read_yaml;
}
