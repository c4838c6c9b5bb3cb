# Packages the accelerator as a kernel of Vitis: vivado -mode batch -source package.tcl -tclargs RTL
#
# RTL is the folder of the SystemVerilog files. Makes accelerator.xo, which `v++ --link --platform ... accelerator.xo`
# takes to an xclbin. The project's tests cannot run this script, since they have no Vivado.
set rtl [lindex $argv 0]
create_project -force packaged packaged
add_files [glob $rtl/*.sv $rtl/*.svh]
set_property file_type {Verilog Header} [get_files *.svh]
set_property top kernel [current_fileset]
update_compile_order -fileset sources_1
ipx::package_project -root_dir packaged/ip -vendor derivable -library kernel -taxonomy /KernelIP -import_files
set core [ipx::current_core]
set_property sdx_kernel true $core
set_property sdx_kernel_type rtl $core
foreach bus {s_axi_control m_axi_memory} {
  ipx::associate_bus_interfaces -busif $bus -clock ap_clk $core
}
ipx::associate_bus_interfaces -clock ap_clk -reset ap_rst_n $core
ipx::create_xgui_files $core
ipx::update_checksums $core
ipx::save_core $core
package_xo -force -xo_path accelerator.xo -kernel_name accelerator -ip_directory packaged/ip -kernel_xml kernel.xml
